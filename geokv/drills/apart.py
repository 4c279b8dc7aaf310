"""Imported first by the process that drills are forked from, and by nothing else.

It takes that process out of the command's process group. A signal to the whole group (of
``timeout``, of a terminal that is closed) then reaches the command alone, which ends its
drills in order; without that process it could not tell when they have ended.
"""

import os

os.setpgid(0, 0)
