"""Nobody holds on to what he reads: a chunk can be evicted, and its place filled anew, while it is
being sent or handed over.

Trips ``doubly-owned`` when chunks are evicted while they are sent, and then ``corrupt``. What the
kernel's send buffer takes at once is not held on to anyway: chunks must be larger than that (a
small byte scale, a slow line).
"""

from __future__ import annotations

from geokv.cache.locality import Entry, Slot
from geokv.cache.record import ChunkHeader
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch this worker's DRAM tier."""
    tier = worker.cache.tier

    def unpinned(slot: Slot, header: ChunkHeader) -> Entry:
        return Entry(slot, header, tier.name, tier._unpin)

    swap(tier, "_pinned", unpinned)
    swap(tier, "_unpin", lambda slot: None)
