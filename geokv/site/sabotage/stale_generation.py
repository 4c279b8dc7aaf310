"""A reader goes by what he remembers of a place, and does not see that it has been filled anew:
what is handed over says the generation before.

Trips ``stale``: a chunk is used under a generation that it never had at that site.
"""

from __future__ import annotations

from dataclasses import replace

from geokv.cache.locality import Entry
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch how this worker's tiers hand chunks over."""
    tiers = worker.cache.tiers
    get = tiers.get

    def remembered(key: bytes) -> Entry | None:
        entry = get(key)
        if entry is not None:
            before = max(0, entry.header.generation - 1)
            entry.header = replace(entry.header, generation=before)
        return entry

    swap(tiers, "get", remembered)
