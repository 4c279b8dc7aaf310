"""The first error of the disk ends the site, as an exception that nobody expected would.

Trips ``integrity``: a site that no fault has ended does not run when all is quiet. Requests to it
fail, which ``expect:answered`` shows.
"""

from __future__ import annotations

import os
import signal

from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch this worker's disk; a site without one is left alone."""
    disk = worker.cache.tiers.disk
    if disk is None:
        return

    def fatal(doing: str, error: OSError) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    swap(disk.outage, "fail", fatal)
