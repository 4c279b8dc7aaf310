"""The coordinator's tests talk to real sites, started as the site tests start them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "site"))

from site_processes import own_room, room  # noqa: F401
