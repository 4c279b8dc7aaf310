"""A site that learns that the table has missed something, or has begun anew, tells it nothing.

Trips ``directory-converges`` after a table was lost: what its sites had told the old one is
unknown to the new one.
"""

from __future__ import annotations

from geokv.site.sabotage._swap import swap
from geokv.site.sabotage.no_anti_entropy import sequenced
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch this worker's way to the table. Raises RunError as ``no-anti-entropy``."""
    swap(sequenced(worker), "_resync_soon", lambda: None)
