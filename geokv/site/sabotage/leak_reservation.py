"""A place that was reserved for something that did not come is never given back.

Trips ``leaked`` after a fetch has failed: places are reserved when all is quiet.
"""

from __future__ import annotations

from geokv.cache.locality import Slot
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch this worker's DRAM tier."""
    tier = worker.cache.tier

    def forgetful(slot: Slot, cause: str = "aborted") -> None:
        tier._leave_reserved(slot)
        tier._quota.left(slot.key)
        tier._settle(slot, cause)
        # Under a name that nobody asks for: others must not wait for it.
        slot.key = b"leaked %d" % slot.index
        slot.settled = None
        tier._reserved[slot.key] = slot
        tier._quota.took(slot.key, "")

    swap(tier, "abort", forgetful)
