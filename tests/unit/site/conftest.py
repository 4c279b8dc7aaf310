"""Real site processes on loopback: no root, no VM."""

from __future__ import annotations

import sys
from pathlib import Path

from site_processes import own_room, room  # noqa: F401

# The damaging proxy is the cache's own test tool.
sys.path.append(str(Path(__file__).parent.parent / "cache"))
