"""The way up: chunks that are read from the disk into DRAM because somebody asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.locality.demotion import Spawn
from geokv.cache.locality.disk import DiskTier
from geokv.cache.locality.dram import DramTier
from geokv.cache.locality.slot import Entry, Slot
from geokv.cache.record import ChunkHeader, verify
from geokv.errors import CacheError, FetchError

Arrival = asyncio.Future[str]
"""``""`` once a chunk is readable in DRAM, or the cause why it will not be."""


class Promoter:
    """Reads chunks of a disk into DRAM.

    Args:
        incarnation: of this site's process, for headers of what comes up.
        refuses: why a chunk must not become readable here; empty if it may.
        on_hot: told every key that came up.
    """

    def __init__(
        self,
        dram: DramTier,
        history: History,
        incarnation: int,
        spawn: Spawn,
        refuses: Callable[[ChunkHeader], str],
        on_hot: Callable[[bytes], None],
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._dram = dram
        self._history = history
        self._incarnation = incarnation
        self._spawn = spawn
        self._refuses = refuses
        self._on_hot = on_hot

    def begin(
        self, disk: DiskTier, key: bytes, tenant: str, ref: ChunkRef | None
    ) -> Arrival | None:
        """Begin to bring ``key`` up, of which DRAM has nothing; None if it is not on the disk.

        Raises:
            FetchError: ``foreign`` (another tenant's chunk) or ``full``.
        """
        header = disk.header(key)
        if header is not None and header.tenant != tenant:
            raise FetchError("foreign", f"chunk {key.hex()} of this site is another tenant's")
        entry = disk.get(key)
        if entry is None:
            return None
        try:
            slot = self._dram.reserve(key, tenant)
        except CacheError as error:
            entry.release()
            raise FetchError("full", error.message, error.hint) from None
        arrival = self._dram.pending(key)
        task = self._spawn(disk.read(entry, slot.view))
        task.add_done_callback(lambda task: self._promoted(task, entry, slot, ref))
        return arrival

    def _promoted(
        self, task: asyncio.Task[ChunkHeader], entry: Entry, slot: Slot, ref: ChunkRef | None
    ) -> None:
        """A read of the disk has ended, in whatever way."""
        key = slot.key
        entry.release()
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        cause = ""
        if isinstance(error, FetchError):
            cause = error.cause
        elif error is not None:
            cause = "cancelled"
        elif ref is not None:
            # Whether lossy KV will do is for the reader to say.
            cause = verify(task.result(), ref, self._dram.layout, exact=False) or ""
        if not cause:
            cause = self._refuses(task.result())
        self.counters[cause or "ok"] += 1
        # A refused chunk never had its place: a later one may.
        where = {"place": -1 if cause else slot.index, "generation": slot.generation}
        self._history.note("promote", key, tier="disk", **where, cause=cause)
        if cause:
            self._dram.abort(slot, cause)
            return
        header = task.result().stamped(slot.generation, self._incarnation, 0)
        self._dram.commit(slot, header, fresh=True)
        self._on_hot(key)
