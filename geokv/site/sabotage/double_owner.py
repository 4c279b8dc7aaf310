"""Every other chunk that comes is put where another one lies, which is still there for readers.

Trips ``doubly-owned``, and ``corrupt`` when the older of two is used.
"""

from __future__ import annotations

from typing import Any

from geokv.cache.locality import Slot
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


class _Shared(dict[int, None]):
    """Places that are leaving; of two with one number each goes without the other."""

    def __delitem__(self, index: int) -> None:
        self.pop(index, None)


def plant(worker: Worker) -> None:
    """Patch this worker's DRAM tier."""
    tier = worker.cache.tier
    reserve = tier.reserve
    count = 0

    def careless(*args: Any, **more: Any) -> Slot:
        nonlocal count
        slot = reserve(*args, **more)
        count += 1
        taken = next(reversed(tier._cached.values()), None)
        if taken is not None and count % 2 == 0:
            slot.index, slot.view, slot.readable = taken.index, taken.view, taken.readable
        return slot

    swap(tier, "reserve", careless)
    swap(tier, "_leaving", _Shared())
