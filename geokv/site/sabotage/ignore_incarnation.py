"""Lives of a site are not told apart: what is sent says life 1 whoever sends it, and whoever
takes it does not look.

Trips ``stale`` when something is fetched from a site that was started again more than a second
ago: it says that it came from a life that has ended.
"""

from __future__ import annotations

from geokv.cache import record
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker

_FIRST_LIFE = 1


def plant(worker: Worker) -> None:
    """Patch what this worker's cache sends, and how its process compares."""
    verify = record.verify

    def lenient(
        header: ChunkHeader,
        ref: ChunkRef,
        layout: ChunkLayout,
        incarnation: int | None = None,
        exact: bool = True,
    ) -> str | None:
        return verify(header, ref, layout, None, exact)

    swap(record, "verify", lenient)
    swap(worker.cache.source, "_incarnation", _FIRST_LIFE)
    swap(worker.cache.tiers._promoter, "_incarnation", _FIRST_LIFE)
