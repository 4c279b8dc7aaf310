"""Whoever has read a chunk from DRAM remembers where it lay and reads there again, whatever has
been put there since, and does not compare what he finds.

Nothing comes of it as long as no chunk that was read has to go. Trips ``corrupt`` when a place that
is remembered is filled anew, and ``expect:answered`` where the content is synthetic, which notices.
A control needs ``workload.cold: keep``: what is emptied before each request is remembered too.
"""

from __future__ import annotations

from geokv.cache.locality import Entry, TierStack
from geokv.cache.locality.slot import Slot
from geokv.cache.record import ChunkHeader
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch how this worker's tiers hand chunks over, and what the process says is there."""
    tiers = worker.cache.tiers
    get, contains = tiers.get, TierStack.__contains__
    read: dict[bytes, tuple[Slot, ChunkHeader]] = {}

    def remembered(key: bytes) -> Entry | None:
        entry = get(key)
        if entry is not None and entry._slot is not None:
            read[key] = entry._slot, entry.header
        if entry is not None or key not in read:
            return entry
        slot, header = read[key]
        return Entry(slot, header, tiers.dram.name, lambda slot: None)

    def believed(self: TierStack, key: bytes) -> bool:
        return contains(self, key) or (self is tiers and key in read)

    swap(tiers, "get", remembered)
    swap(TierStack, "__contains__", believed)
    swap(worker.cache._fetcher, "_rotten", lambda entry: False)
