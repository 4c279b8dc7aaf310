"""DRAM over disk as one place where a site's chunks are.

Chunks come into DRAM and are read from there. They go down to the disk when the write
policy says so, asynchronously, and come up again when somebody asks; the copy on the
disk stays, so that a chunk that was not changed (none ever is) goes down once.

Write policies:

* ``write-back``: when DRAM gives a chunk up.
* ``write-through``: as soon as it is stored or fetched.
* ``hot-only``: when it is read again while it is here, or stored again soon after it
  was given up unread, or was fetched from another site, which is a reuse too. AIBrix's
  default of what its first level hands to its second (ingestion type HOT).

Longer than most: what is readable, what is hot and what is gone is known only by looking at both
tiers and at what is on its way between them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Literal

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.locality.demotion import Demoter, Spawn
from geokv.cache.locality.disk import DiskTier
from geokv.cache.locality.dram import DramTier
from geokv.cache.locality.promotion import Arrival, Promoter
from geokv.cache.locality.slot import Entry, Slot
from geokv.cache.record import ChunkHeader
from geokv.errors import CacheError, ConfigError, DamagedChunks, FetchError

WritePolicy = Literal["write-back", "write-through", "hot-only"]
WRITE_POLICIES: tuple[WritePolicy, ...] = ("write-back", "write-through", "hot-only")


class TierStack:
    """One site's DRAM tier and, if it has one, the disk below it.

    Args:
        incarnation: of this site's process, for headers of what comes up.
        spawn: runs work that no caller waits for.
        on_gone: told every key that is in no tier any more and was not dropped.
        on_hot: told every key when it is used again here for the first time.

    Raises:
        ConfigError: an unknown write policy, or a disk under a DRAM tier without
            spare places, where nothing could wait on its way down.
    """

    def __init__(
        self,
        dram: DramTier,
        disk: DiskTier | None,
        history: History,
        incarnation: int,
        spawn: Spawn,
        on_gone: Callable[[bytes], None],
        on_hot: Callable[[bytes], None],
        write: WritePolicy = "write-back",
    ) -> None:
        if write not in WRITE_POLICIES:
            raise ConfigError(f"unknown write policy {write!r}", f"known: {WRITE_POLICIES}")
        if disk is not None and not dram.spare:
            raise ConfigError(
                "a disk tier needs a DRAM tier with spare places",
                "give DramTier spare=8: as many chunks can wait for the disk",
            )
        self.dram = dram
        self.disk = disk
        self.write = write
        self.refuses: Callable[[ChunkHeader], str] = lambda header: ""
        """Why a chunk must not become readable here, whatever brought it."""
        self._history = history
        self._promoter = Promoter(
            dram,
            history,
            incarnation,
            spawn,
            lambda header: self.refuses(header),
            lambda key: self._became_hot(key),
        )
        self._on_gone = on_gone
        self._on_hot = on_hot
        self._hot: dict[bytes, None] = {}
        self._ghost: OrderedDict[bytes, None] = OrderedDict()
        self._demoter: Demoter | None = None
        dram.on_evict = self._evicted
        if disk is not None:
            self._demoter = Demoter(disk, dram.spare, history, spawn, self._gone)
            dram.offer = self._offered
            disk.on_evict = self._evicted_from_disk
            disk.on_lost = self._lost
            disk.outage.on_change = self._outage
            self._hot.update(dict.fromkeys(disk.keys()))
            found = {"chunks": disk.indexed, "foreign": disk.foreign, **disk.causes}
            if any(found.values()):
                history.note("disk-index", None, tier="disk", **found)
            for key in list(disk.keys()):
                note_found(history, disk, key)
            if disk.outage.down:
                self._outage(disk.outage.reason)

    # -- what is here ----------------------------------------------------------

    def __contains__(self, key: bytes) -> bool:
        """Is the chunk in DRAM, on the disk, or on its way down?"""
        return key in self.dram or self.on_disk(key)

    def on_disk(self, key: bytes) -> bool:
        """Is it on the disk or on its way there?"""
        return (self.disk is not None and key in self.disk) or (
            self._demoter is not None and key in self._demoter
        )

    def header(self, key: bytes) -> ChunkHeader | None:
        """What is known of a readable chunk of any tier; from the disk without tokens."""
        header = self.dram.header(key)
        if header is None and self._demoter is not None:
            header = self._demoter.header(key)
        return header if header is not None or self.disk is None else self.disk.header(key)

    def is_hot(self, key: bytes) -> bool:
        """Has it been used again since it came? What a restart found on the disk has."""
        return key in self._hot

    def keys(self, tier: str = "all") -> list[bytes]:
        """Of all chunks in ``dram``, on (or on their way to) the ``disk``, or in ``all``.

        Raises:
            CacheError: there is no such tier here.
        """
        here = {"dram": self.dram.keys()}
        if self.disk is not None and self._demoter is not None:
            here["disk"] = [*self.disk.keys(), *self._demoter.keys()]
        here["all"] = list(dict.fromkeys(key for keys in here.values() for key in keys))
        if tier not in here:
            raise CacheError(f"there is no tier {tier!r}", f"this site has: {', '.join(here)}")
        return here[tier]

    # -- reading ---------------------------------------------------------------

    def get(self, key: bytes) -> Entry | None:
        """The chunk if it is in DRAM, pinned; a read by a user of the cache."""
        entry = self.dram.get(key)
        if entry is not None and entry.uses == 1:
            self._became_hot(key)
        return entry

    def arriving(self, key: bytes, tenant: str, ref: ChunkRef | None = None) -> Arrival | None:
        """A future of the chunk's coming into DRAM, if it is on its way or can be:
        ``""`` once it is readable, or the cause why it will not be. Whoever waits does
        so through ``asyncio.shield``. ``None`` if there is nothing to wait for.

        Raises:
            FetchError: ``foreign`` (another tenant's chunk) or ``full``.
        """
        pending = self.dram.pending(key)
        if pending is not None or self.disk is None:
            return pending
        if self._demoter is not None and key in self._demoter:
            return self._demoter.end_of(key)
        return self._promoter.begin(self.disk, key, tenant, ref)

    def prefetch(self, refs: Sequence[ChunkRef]) -> dict[int, Arrival]:
        """Begin to bring up what of ``refs`` is not in DRAM; its future by index."""
        begun: dict[int, Arrival] = {}
        # Room is not made at the cost of what is wanted with it.
        held = [self.dram.pin(ref.key) for ref in refs]
        for i, ref in enumerate(refs):
            if held[i] is not None:
                continue
            try:
                arrival = self.arriving(ref.key, ref.tenant, ref)
            except FetchError:
                # Whoever fetches asks again and learns why.
                continue
            if arrival is not None:
                begun[i] = arrival
        for entry in held:
            if entry is not None:
                entry.release()
        return begun

    # -- writing (the fetcher's side) ------------------------------------------

    def pending(self, key: bytes) -> Arrival | None:
        """The end of a filling in DRAM that is under way, as ``SlotTier.pending``."""
        return self.dram.pending(key)

    def reserve(self, key: bytes, owner: str) -> Slot:
        """A place in DRAM. Raises ``CacheError`` as ``SlotTier.reserve``."""
        return self.dram.reserve(key, owner)

    def commit(self, slot: Slot, header: ChunkHeader) -> None:
        """What another site sent is whole.

        Raises:
            FetchError: it must not be kept; the place is given back.
            CacheError: as ``SlotTier``.
        """
        key = slot.key
        self._check_welcome(slot, header)
        self.dram.commit(slot, header, fresh=True)
        self._became_hot(key, tell=False)
        self._written(key)

    def abort(self, slot: Slot, cause: str) -> None:
        """It will not come. Raises ``CacheError`` as ``SlotTier``."""
        self.dram.abort(slot, cause)

    def stored(self, slot: Slot, header: ChunkHeader) -> None:
        """What was computed here is whole. Raises as ``commit``."""
        key = slot.key
        self._check_welcome(slot, header)
        self.dram.commit(slot, header)
        if self._ghost.pop(key, True) is None:
            self._became_hot(key)
        self._written(key)

    def _check_welcome(self, slot: Slot, header: ChunkHeader) -> None:
        cause = self.refuses(header)
        if cause:
            self.dram.abort(slot, cause)
            raise FetchError(cause, f"chunk {header.key.hex()} must not be kept ({cause})")

    def chained(self, keys: Sequence[bytes]) -> None:
        """``keys`` were stored or read as one prefix, head first."""
        self.dram.chained(keys)
        if self.disk is not None:
            self.disk.chained(keys)

    # -- removing --------------------------------------------------------------

    def elsewhere(self, tier: str, key: bytes) -> bool:
        """Would ``key`` still be here if it were dropped from ``tier``?"""
        return (tier == "dram" and self.on_disk(key)) or (tier == "disk" and key in self.dram)

    def check_deleted(self, keys: Sequence[bytes]) -> None:
        """Raises ``CacheError`` if files of these dropped chunks could not be removed."""
        left = self.disk.undeleted(keys) if self.disk is not None else []
        if left:
            raise CacheError(
                f"{len(left)} dropped chunks are still files on the disk, such as {left[0]}",
                "this process does not serve them, but one that starts on this folder would: "
                "make the disk writable, or remove the folder",
            )

    def drop(self, tier: str, keys: Sequence[bytes]) -> list[tuple[bytes, str, int]]:
        """Forget ``keys`` in ``dram``, ``disk`` or ``all``; what was forgotten where: its
        tier and place there.

        What is on its way down belongs to the disk, and has no place there yet (-1).
        """
        gone: list[tuple[bytes, str, int]] = []
        if tier in ("dram", "all"):
            places = {key: self.dram.place(key) for key in keys}
            gone += [(key, "dram", places[key]) for key in self.dram.drop(keys)]
        if tier in ("disk", "all") and self.disk is not None and self._demoter is not None:
            places = {key: self.disk.place(key) for key in keys}
            gone += [(key, "disk", -1) for key in self._demoter.forget(keys)]
            gone += [(key, "disk", places[key]) for key in self.disk.drop(keys)]
        for key, _, _ in gone:
            if key not in self:
                self._hot.pop(key, None)
                self._ghost.pop(key, None)
        return gone

    def abandon(self) -> None:
        """The disk hangs: let everybody go who waits for it."""
        if self.disk is not None:
            self.disk.abandon()

    def close(self) -> None:
        """Give up what is on its way down and let the disk's folder go; call when
        all spawned work has ended."""
        if self._demoter is not None:
            self._demoter.close()
        if self.disk is not None:
            self.disk.close()

    def stats(self) -> dict[str, Any]:
        """Of the disk and the ways up and down; DRAM has its own."""
        if self.disk is None or self._demoter is None:
            return {}
        return {
            **self.disk.stats(),
            "write": self.write,
            "demotions": dict(self._demoter.counters),
            "demoting": len(self._demoter),
            "promotions": dict(self._promoter.counters),
        }

    def check_integrity(self, deep: bool = False) -> None:
        """INV-5 of every tier. Raises ``CacheError`` naming what does not balance.

        Args:
            deep: also compare every readable chunk with its checksums; what is wrong then is
                ``DamagedChunks``, which says that all books are in order.
        """
        self.dram.check_integrity()
        if self.disk is not None:
            self.disk.check_integrity()
        waiting = 0 if self._demoter is None else len(self._demoter)
        if waiting > self.dram.spare:
            raise CacheError(f"{waiting} chunks wait for the disk, {self.dram.spare} may")
        if deep:
            found = {"dram": self.dram.damaged()}
            if self.disk is not None:
                found["disk"] = self.disk.damaged()
            if any(found.values()):
                raise DamagedChunks(found)

    # -- inside ----------------------------------------------------------------

    def _written(self, key: bytes) -> None:
        if self.write == "write-through":
            self._send_down(key)

    def _became_hot(self, key: bytes, tell: bool = True) -> None:
        if key in self._hot:
            return
        self._hot[key] = None
        if self.write == "hot-only":
            self._send_down(key)
        if tell:
            self._on_hot(key)

    def _send_down(self, key: bytes) -> None:
        if self._demoter is None or self.on_disk(key):
            return
        entry = self.dram.pin(key)
        if entry is not None:
            self._demoter.add(entry)

    def _offered(self, key: bytes, entry: Entry | None) -> None:
        """DRAM gives a chunk up."""
        if self.write == "write-back" and self._demoter is not None and not self.on_disk(key):
            if entry is None:
                self._demoter.refused(key, "full")
            else:
                self._demoter.add(entry)
        elif entry is not None:
            entry.release()

    def _evicted(self, key: bytes, place: int) -> None:
        self._history.note("evict", key, tier="dram", place=place)
        if self.on_disk(key):
            return
        if key not in self._hot:
            self._ghost[key] = None
            if len(self._ghost) > self.dram.slots:
                self._ghost.popitem(last=False)
        self._gone(key)

    def _evicted_from_disk(self, key: bytes, place: int) -> None:
        self._history.note("evict", key, tier="disk", place=place)
        self._gone(key)

    def _lost(self, key: bytes, place: int) -> None:
        self._history.note("drop", key, tier="disk", place=place, cause="unusable")
        self._gone(key)

    def _gone(self, key: bytes) -> None:
        if key not in self:
            self._hot.pop(key, None)
            self._on_gone(key)

    def _outage(self, reason: str) -> None:
        self._history.note("disk-down" if reason else "disk-up", None, reason=reason)


def note_found(history: History, disk: DiskTier, key: bytes) -> None:
    """A chunk that an earlier life of this site left on the disk."""
    header = disk.header(key)
    if header is not None:
        history.note(
            "found",
            key,
            tier="disk",
            place=disk.place(key),
            tenant=header.tenant,
            generation=header.generation,
            incarnation=header.incarnation,
            checksums=[digest.hex() for digest in header.checksums],
        )
