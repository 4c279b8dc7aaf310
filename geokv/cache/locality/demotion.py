"""The way down: chunks that wait for the disk, pinned in DRAM until they are there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from geokv.cache.history import History
from geokv.cache.locality.disk import DiskTier
from geokv.cache.locality.slot import Entry
from geokv.cache.record import ChunkHeader
from geokv.errors import CacheError

Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Demoter:
    """Writes chunks to the disk one after the other; nobody waits for it.

    Args:
        depth: how many chunks may wait; what comes then is refused, and counted.
        on_gone: told a key whose chunk did not reach the disk.
    """

    def __init__(
        self,
        disk: DiskTier,
        depth: int,
        history: History,
        spawn: Spawn,
        on_gone: Callable[[bytes], None],
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._disk = disk
        self._depth = depth
        self._history = history
        self._spawn = spawn
        self._on_gone = on_gone
        self._waiting: dict[bytes, Entry] = {}
        self._ends: dict[bytes, asyncio.Future[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, key: bytes) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def keys(self) -> list[bytes]:
        """Of all chunks that wait, the one being written included."""
        return list(self._waiting)

    def header(self, key: bytes) -> ChunkHeader | None:
        """Of a chunk that waits."""
        entry = self._waiting.get(key)
        return entry.header if entry is not None else None

    def add(self, entry: Entry) -> None:
        """Take over a pinned chunk; released at once if the queue is full."""
        key = entry.header.key
        full = len(self._waiting) >= self._depth
        if full or not self._disk.outage.may_try:
            self.refused(key, "full" if full else "down")
            entry.release()
            return
        self._waiting[key] = entry
        if self._task is None or self._task.done():
            self._task = self._spawn(self._write_all())

    def refused(self, key: bytes, cause: str) -> None:
        """Count a chunk that will not reach the disk."""
        self.counters[cause] += 1
        self._history.note("demote", key, tier="disk", cause=cause)

    def end_of(self, key: bytes) -> asyncio.Future[str]:
        """Done when a waiting chunk is on the disk (``""``) or will not be (``absent``).
        Wait for it through ``asyncio.shield``."""
        if key not in self._ends:
            self._ends[key] = asyncio.get_running_loop().create_future()
        return self._ends[key]

    def forget(self, keys: Iterable[bytes] | None = None) -> list[bytes]:
        """Chunks of ``keys`` (or all) that wait will not be written; which they were.
        The one being written is the disk's to drop."""
        asked = list(self._waiting) if keys is None else list(dict.fromkeys(keys))
        gone = [key for key in asked if key in self._waiting and self._disk.pending(key) is None]
        for key in gone:
            self._end(key, "dropped")
        return gone

    def close(self) -> None:
        """Give up what waits; call when the task that writes has ended."""
        self.forget()

    async def _write_all(self) -> None:
        while self._waiting:
            key, entry = next(iter(self._waiting.items()))
            cause = "cancelled"
            try:
                cause = await self._write(key, entry)
            finally:
                self._end(key, cause)
                if cause:
                    self._on_gone(key)

    async def _write(self, key: bytes, entry: Entry) -> str:
        if key in self._disk:
            return ""
        try:
            slot = self._disk.reserve(key, entry.header.tenant)
        except CacheError:
            return "down" if self._disk.outage.down else "full"
        try:
            await self._disk.write(slot, entry.header, entry.view)
        except CacheError:
            return "down" if self._disk.outage.down else "dropped"
        return ""

    def _end(self, key: bytes, cause: str) -> None:
        self._waiting.pop(key).release()
        if cause:
            self.refused(key, cause)
        else:
            self.counters["written"] += 1
            place = self._disk.place(key)
            self._history.note("demote", key, tier="disk", place=place, cause="")
        end = self._ends.pop(key, None)
        if end is not None and not end.done():
            end.set_result("absent" if cause else "")
