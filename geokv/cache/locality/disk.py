"""The disk tier: one file per chunk, whole or absent whatever happens to the process.

No entry is synced to the medium unless asked: a killed process loses nothing of what
the kernel has taken, and after a power failure a file that is not whole is found by
its checksums. So syncing would buy some hits after a rare event for every write's
time, and never an answer that is right instead of wrong.

Longer than most: a place, a file and what the index says of both change in one step or not at all.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from geokv.cache.layout import ChunkLayout
from geokv.cache.lifetime import EvictionPolicy
from geokv.cache.locality.arena import touched_memory
from geokv.cache.locality.disk_cost import DiskCost, DiskTime
from geokv.cache.locality.disk_file import (
    finish,
    flip_bit,
    partial_path,
    read_file,
    remove_file,
    write_partial,
)
from geokv.cache.locality.disk_index import Foreign, chunk_path, lock_folder, scan_folder
from geokv.cache.locality.disk_threads import DiskThreads
from geokv.cache.locality.outage import Outage
from geokv.cache.locality.slot import Entry, Slot
from geokv.cache.locality.slots import SlotTier
from geokv.cache.record import ChunkHeader
from geokv.errors import CacheError, FetchError, RecordError

T = TypeVar("T")
_log = logging.getLogger(__name__)


class DiskTier(SlotTier):
    """Chunks of one site in files of one folder.

    ``reserve`` → ``write`` (commits, or aborts and raises) → ``pin`` or ``get`` →
    ``read`` into memory. Headers kept here have no tokens; ``read`` returns them.

    A disk that refuses (full, failing, read-only, no permission) is an ``Outage``:
    the tier holds what it held, reads what can be read and takes nothing new. What
    turns out wrong when it is read is removed.

    Entries of other models and chunk layouts are kept, because a site may go back to
    them, but count towards the capacity and go first.

    Args:
        folder: of this site alone.
        cost: what the run charges for the disk's time; ``None`` charges nothing.
        threaded: do the real work on threads beside the event loop. Off by default:
            inline work is deterministic and in virtual time costs nothing. Switch it
            on under a wall clock, where inline work would stall the site's network.
        sync: wait until each entry is on the medium.
        retry_s: how soon to try a disk again that was down (doubles up to a minute).

    Attributes:
        on_lost: told every key whose entry turned out unusable, and the place it had.

    Raises:
        ConfigError: as ``SlotTier``, or another process uses the folder.
    """

    name = "disk"

    def __init__(
        self,
        layout: ChunkLayout,
        capacity_bytes: int,
        folder: Path,
        policy: EvictionPolicy | str = "lru",
        *,
        cost: DiskCost | None = None,
        threaded: bool = False,
        sync: bool = False,
        retry_s: float = 1.0,
    ) -> None:
        super().__init__(layout, capacity_bytes, policy)
        self.folder = folder
        self.on_lost: Callable[[bytes, int], None] | None = None
        self.outage = Outage(retry_s)
        self.time = DiskTime(cost)
        self.causes: Counter[str] = Counter()
        self.indexed = 0
        self.hanging = 0
        self.written_chunks = 0
        self.read_chunks = 0
        self._capacity_bytes = capacity_bytes
        self._sync = sync
        self._sequence = 0
        self._foreign: deque[Foreign] = deque()
        self._foreign_bytes = 0
        self._stuck: dict[Path, None] = {}
        self._unwanted: dict[bytes, None] = {}
        self._lock: int | None = None
        self._scratch: memoryview | None = None
        self._threads = DiskThreads(2) if threaded else None
        self._open()

    def abandon(self) -> None:
        """The disk hangs: whoever waits for it is let go with an error, and it is not touched
        again. What hangs goes on until the process ends, in memory that is not to be used.
        Only where work is done on threads; a disk that hangs inline stops the whole site."""
        if self._threads is not None:
            left = self._threads.abandon()
            _log.warning("%s hangs: %d pieces of work are left behind", self.folder, left)

    def close(self, patience_s: float = 5.0) -> None:
        """End the threads and let the folder go. Files stay.

        What hangs on the disk longer than ``patience_s`` is counted (``hanging``), told once
        and left to the process's end. Until then the folder stays locked: a write that goes on
        after all would meet those of the next owner.
        """
        if self._threads is not None:
            # Waited for already; those that are idle need a moment to end.
            known = self._threads.abandoned
            self.hanging = self._threads.close(min(0.1, patience_s) if known else patience_s)
            if self.hanging:
                if not known:
                    self.abandon()
                return
            self._threads = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- writing ---------------------------------------------------------------

    def reserve(self, key: bytes, owner: str = "") -> Slot:
        """As ``SlotTier``; also refused while the disk is down.

        Raises:
            CacheError: no room, or the disk is down and it is not yet time to try.
        """
        if not self.outage.may_try or (self._lock is None and not self._open()):
            raise CacheError(f"the disk is down ({self.outage.reason})", "see the first warning")
        if self._stuck:
            self._retry_stuck()
        self._make_foreign_go()
        return super().reserve(key, owner)

    async def write(self, slot: Slot, header: ChunkHeader, payload: memoryview) -> None:
        """Write a reserved chunk and make it readable.

        Raises:
            CacheError: it was dropped meanwhile, or the disk refused; the slot is
                given back in any case, and nothing is left.
        """
        path = chunk_path(self.folder, slot.key)
        self._sequence += 1
        sequence = self._sequence
        end_ns = self.time.book("write", self.layout.wire_bytes)

        def work() -> Path:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            return write_partial(path, header, payload, sequence, self._sync)

        try:
            partial = await self._run(work)
            await self.time.until(end_ns)
            if slot.key not in self._unwanted:
                await self._run(lambda: finish(partial, path, self._sync))
                self._stuck.pop(path, None)
        except OSError as error:
            self._undo(slot, path, "disk")
            self.outage.fail(f"writing {path}", error)
            raise CacheError(f"{path}: not written ({error.strerror})") from None
        except BaseException:
            self._undo(slot, path, "cancelled")
            raise
        self.outage.work()
        if slot.key in self._unwanted:
            self._undo(slot, path, "dropped")
            raise CacheError(f"chunk {header.key.hex()} was dropped while it was written")
        self.written_chunks += 1
        self.commit(slot, replace(header, tokens=()))

    # -- reading ---------------------------------------------------------------

    async def read(self, entry: Entry, into: memoryview) -> ChunkHeader:
        """Read a pinned chunk into memory and verify it; the whole header.

        Args:
            into: writable, ``layout.real_bytes`` long; garbage if this raises.

        Raises:
            FetchError: ``corrupt`` (not what was written), ``disk`` (it cannot be
                read) or ``absent`` (dropped meanwhile). The entry is gone then.
        """
        key = entry.header.key
        path = chunk_path(self.folder, key)
        end_ns = self.time.book("read", self.layout.wire_bytes)
        failure: FetchError | None = None
        header = entry.header
        try:
            header = await self._run(lambda: read_file(path, self.layout, into))
        except RecordError as error:
            failure = FetchError("corrupt", f"{path}: {error.message}")
        except OSError as error:
            failure = FetchError("disk", f"{path}: cannot be read ({error.strerror})")
            if not isinstance(error, FileNotFoundError):
                self.outage.fail(f"reading {path}", error)
        await self.time.until(end_ns)
        if entry.leaving:
            raise FetchError("absent", f"chunk {key.hex()} was dropped while it was read")
        if failure is None and header.key != key:
            failure = FetchError("corrupt", f"{path}: another chunk's record")
        if failure is not None:
            self._lose(key, failure.cause)
            raise failure
        self.read_chunks += 1
        return header

    # -- removing --------------------------------------------------------------

    def drop(self, keys: Iterable[bytes] | None = None) -> list[bytes]:
        """As ``SlotTier``; what is being written will not become readable either."""
        asked = None if keys is None else list(keys)
        for key in list(self._reserved) if asked is None else asked:
            if key in self._reserved:
                self._unwanted[key] = None
        return super().drop(asked)

    def flip_bit(self, key: bytes, bit: int) -> None:
        """Damage the payload of an entry, past every check. Only for drills.

        Raises:
            CacheError: it is not here, or the disk refuses.
        """
        path = chunk_path(self.folder, key)
        if key not in self:
            raise CacheError(f"chunk {key.hex()} is not here")
        try:
            flip_bit(path, bit)
        except OSError as error:
            raise CacheError(f"{path}: cannot be damaged ({error.strerror})") from None

    def undeleted(self, keys: Iterable[bytes]) -> list[Path]:
        """Files of these chunks that are entries no more, but could not be removed."""
        paths = (chunk_path(self.folder, key) for key in keys)
        return [path for path in paths if path in self._stuck]

    @property
    def foreign(self) -> int:
        """Entries of other models and chunk layouts that are still there."""
        return len(self._foreign)

    def stats(self) -> dict[str, Any]:
        """As ``SlotTier``, with bytes (wire bytes, as capacity counts them), time and
        failures."""
        wire = self.layout.wire_bytes
        return {
            **super().stats(),
            "indexed": self.indexed,
            "written_bytes": self.written_chunks * wire,
            "read_bytes": self.read_chunks * wire,
            "foreign": self.foreign,
            "stuck": len(self._stuck),
            "hanging": self.hanging,
            "causes": dict(self.causes),
            "down": self.outage.down,
            "outages": self.outage.outages,
            "failures": dict(self.outage.failures),
            "busy_ns": dict(self.time.busy_ns),
            "late_ns": self.time.late_ns,
        }

    # -- inside ----------------------------------------------------------------

    def _open(self) -> bool:
        """Take the folder and index what is in it; False if the disk refuses."""
        lock: int | None = None
        try:
            lock = lock_folder(self.folder)
            found = scan_folder(self.folder, self.layout)
        except OSError as error:
            if lock is not None:
                os.close(lock)
            self.outage.fail(f"opening {self.folder}", error)
            return False
        self._lock = lock
        self._foreign = deque(found.foreign)
        self._foreign_bytes = sum(foreign.wire_bytes for foreign in found.foreign)
        self._stuck.update(dict.fromkeys(found.stuck))
        self.causes.update(found.removed)
        self.indexed = len(found.records)
        for record in found.records:
            slot = super().reserve(record.header.key, record.header.tenant)
            self.commit(slot, replace(record.header, tokens=()))
        numbers = [record.sequence for record in found.records]
        numbers += [foreign.sequence for foreign in found.foreign]
        self._sequence = max(numbers, default=self._sequence)
        return True

    def _wrong_with(self, key: bytes, slot: Slot) -> str:
        if self._threads is not None and self._threads.abandoned:
            raise CacheError(f"disk: {self.folder} hangs, nothing in it can be checked")
        if self._scratch is None:
            self._scratch = touched_memory(self.layout.real_bytes)
        path = chunk_path(self.folder, key)
        try:
            header = read_file(path, self.layout, self._scratch)
        except (RecordError, OSError) as error:
            return f"disk: {path}: {error}"
        if slot.header is None or not header.key == slot.header.key == key:
            return f"disk: {path} has another chunk's header"
        return ""

    def _leave_cached(self, key: bytes) -> None:
        super()._leave_cached(key)
        self._unlink(chunk_path(self.folder, key))

    def _lose(self, key: bytes, cause: str) -> None:
        self.causes[cause] += 1
        place = self.place(key)
        if super().drop([key]) and self.on_lost is not None:
            self.on_lost(key, place)

    def _undo(self, slot: Slot, path: Path, cause: str) -> None:
        self._unwanted.pop(slot.key, None)
        self._unlink(partial_path(path))
        self._unlink(path)
        self.abort(slot, cause)

    def _unlink(self, path: Path) -> None:
        if self._threads is not None and self._threads.abandoned:
            # It would hang here too. The next owner of the folder removes what is not whole.
            self._stuck[path] = None
            return
        error = remove_file(path)
        if error is not None:
            self._stuck[path] = None
            self.outage.fail(f"removing {path}", error)

    def _retry_stuck(self) -> None:
        self._stuck = {path: None for path in self._stuck if remove_file(path) is not None}

    def _make_foreign_go(self) -> None:
        taken = (len(self._cached) + len(self._reserved) + 1) * self.layout.wire_bytes
        while self._foreign and taken + self._foreign_bytes > self._capacity_bytes:
            gone = self._foreign.popleft()
            self._foreign_bytes -= gone.wire_bytes
            self.causes["foreign"] += 1
            self._unlink(gone.path)

    async def _run(self, work: Callable[[], T]) -> T:
        return work() if self._threads is None else await self._threads.run(work)
