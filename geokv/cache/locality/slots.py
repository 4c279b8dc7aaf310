"""The books of a tier: places, who is in them, and who reads them.

A slot goes free -> reserved -> cached -> free. A cached chunk that is dropped while
somebody reads it is *leaving*: unreadable for newcomers, freed with its last pin.
Capacity counts what the run stands for: every chunk takes ``layout.wire_bytes`` (full
size divided by S) of ``capacity_bytes``, though only the real KV is stored.

Longer than most: every change of a slot's state keeps the free list, the keys, the quotas and the
policy in step, and these are not to be changed from elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar

from geokv.cache.layout import ChunkLayout
from geokv.cache.lifetime import EvictionPolicy, make_policy
from geokv.cache.lifetime.quota import Quota
from geokv.cache.locality.slot import Entry, Slot, State, check_places
from geokv.cache.record import ChunkHeader
from geokv.errors import CacheError, ConfigError, DamagedChunks
from geokv.units import show_size


class SlotTier:
    """What every tier shares; a tier adds where the bytes are.

    Args:
        capacity_bytes: counted in wire bytes per chunk (see the module).
        policy: an eviction policy, or the name of one.
        spare: further places, only for chunks that have been evicted and are still
            read (see ``offer``).

    Attributes:
        on_evict: told every key that had to go for room, and the place it had.
        offer: shown every key that has to go, and the chunk, pinned, if there is a
            spare place for it. As long as it keeps the pin the chunk stays whole.

    Raises:
        ConfigError: not one chunk fits, or the policy is unknown.
    """

    name: ClassVar[str]

    def __init__(
        self,
        layout: ChunkLayout,
        capacity_bytes: int,
        policy: EvictionPolicy | str,
        spare: int = 0,
    ) -> None:
        count = capacity_bytes // layout.wire_bytes
        if count < 1:
            raise ConfigError(
                f"tier.capacity_bytes: {show_size(capacity_bytes)} holds no chunk of "
                f"{show_size(layout.wire_bytes)}",
                "make the tier larger or the chunk smaller",
            )
        if spare < 0:
            raise ConfigError(f"tier.spare: must be ≥ 0, got {spare}")
        self.layout = layout
        self.slots = count
        """How many chunks fit."""
        self.spare = spare
        self.on_evict: Callable[[bytes, int], None] | None = None
        self.offer: Callable[[bytes, Entry | None], None] | None = None
        self._policy = make_policy(policy, count) if isinstance(policy, str) else policy
        self._places = [Slot(i, view) for i, view in enumerate(self._views(count + spare))]
        self._free = list(reversed(self._places))
        self._cached: dict[bytes, Slot] = {}
        self._reserved: dict[bytes, Slot] = {}
        self._leaving: dict[int, None] = {}
        self._room: asyncio.Future[None] | None = None
        self._allowed = count
        self._quota = Quota(count)
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def _views(self, count: int) -> Sequence[memoryview]:
        """Memory of each place. A tier that is no memory has none, and makes its
        places when they are first needed: a disk may have millions."""
        return []

    # -- writing ---------------------------------------------------------------

    def limit_owners(self, share: float) -> None:
        """From now on no owner gets more than ``share`` of the places. Raises ConfigError
        for an impossible share."""
        self._quota.limit(share)

    def reserve(self, key: bytes, owner: str = "") -> Slot:
        """A slot to fill; the key stays unreadable until ``commit``.

        Args:
            owner: whose quota it counts for. Who has used his up loses a chunk of his own.

        Raises:
            CacheError: the key is here or on its way (look first: ``get``,
                ``pending``), or every slot that might be had is pinned or reserved.
        """
        if key in self._cached or key in self._reserved:
            raise CacheError(f"chunk {key.hex()} is already here or on its way")
        while self._quota.used_up(owner):
            if not self._evict_one(key, owner):
                raise CacheError(
                    f"no room: all {self._quota.most} slots of {owner!r} are pinned or filling",
                    "give tenants a larger share of the tier",
                )
        while self._crowded or not self._unused:
            if not self._evict_one(key):
                raise CacheError(
                    f"no room: all {self._allowed} slots are pinned or being filled",
                    "make the tier larger or let fewer requests run at once",
                )
        if not self._free:
            self._places.append(Slot(len(self._places)))
            self._free.append(self._places[-1])
        slot = self._free.pop()
        slot.generation += 1
        slot.state = "reserved"
        slot.key = key
        slot.header = None
        slot.settled = None
        slot.uses = 0
        self._reserved[key] = slot
        self._quota.took(key, owner)
        return slot

    def commit(self, slot: Slot, header: ChunkHeader, fresh: bool = False) -> None:
        """Make a filled slot readable under its key. It never changes again.

        Args:
            fresh: the chunk was brought for a reader, whose ``get`` is the next one
                and no hit of this tier.

        Raises:
            CacheError: the slot is not reserved, or the header is another chunk's.
        """
        self._leave_reserved(slot)
        if header.key != slot.key:
            self._settle(slot, "mismatch")
            self._quota.left(slot.key)
            self._to_free(slot)
            raise CacheError(f"header of {header.key.hex()} for a slot of {slot.key.hex()}")
        slot.state = "cached"
        slot.header = header
        slot.fresh = fresh
        self._cached[slot.key] = slot
        self._policy.added(slot.key)
        self._settle(slot, "")
        self._tell_room()

    def abort(self, slot: Slot, cause: str = "aborted") -> None:
        """Give a reserved slot back; those who wait for it learn ``cause``.

        Raises:
            CacheError: the slot is not reserved.
        """
        self._leave_reserved(slot)
        self._quota.left(slot.key)
        self._settle(slot, cause)
        self._to_free(slot)

    def pending(self, key: bytes) -> asyncio.Future[str] | None:
        """While ``key`` is being filled by another: a future for everybody, whose
        result is ``""`` once it is readable or the cause why it never will be.
        Wait for it through ``asyncio.shield``."""
        slot = self._reserved.get(key)
        if slot is None:
            return None
        if slot.settled is None:
            slot.settled = asyncio.get_running_loop().create_future()
        return slot.settled

    def room(self) -> asyncio.Future[None]:
        """Done when ``reserve`` may find room that it has not found now. Wait for it
        through ``asyncio.shield``, holding no pin: two who hold could wait for each other."""
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        return self._room

    # -- reading ---------------------------------------------------------------

    def __contains__(self, key: bytes) -> bool:
        return key in self._cached

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, key: bytes) -> Entry | None:
        """The chunk, pinned, or ``None``; counted as a hit or a miss."""
        slot = self._cached.get(key)
        if slot is None or slot.header is None:
            self.misses += 1
            return None
        if slot.fresh:
            slot.fresh = False
        else:
            self.hits += 1
            slot.uses += 1
            self._policy.used(key)
        return self._pinned(slot, slot.header)

    def pin(self, key: bytes) -> Entry | None:
        """The chunk, pinned, without counting it as read by anybody."""
        slot = self._cached.get(key)
        if slot is None or slot.header is None:
            return None
        return self._pinned(slot, slot.header)

    def header(self, key: bytes) -> ChunkHeader | None:
        """What the tier knows of a readable chunk, without reading it."""
        slot = self._cached.get(key)
        return slot.header if slot is not None else None

    def place(self, key: bytes) -> int:
        """Number of the place where a readable chunk lies; -1 for what is not here."""
        slot = self._cached.get(key)
        return slot.index if slot is not None else -1

    def chained(self, keys: Sequence[bytes]) -> None:
        """Tell the policy that ``keys`` were stored or read as one prefix, head first."""
        self._policy.chained([key for key in keys if key in self._cached])

    def keys(self) -> list[bytes]:
        """Keys of all readable chunks."""
        return list(self._cached)

    # -- removing --------------------------------------------------------------

    def drop(self, keys: Iterable[bytes] | None = None) -> list[bytes]:
        """Make ``keys`` (or everything) unreadable at once; returns those that were here.

        Pinned chunks keep their memory until the last reader lets go. What is still
        being filled is left alone.
        """
        asked = self.keys() if keys is None else dict.fromkeys(keys)
        gone = [key for key in asked if key in self._cached]
        for key in gone:
            self._policy.removed(key)
            self._leave_cached(key)
        return gone

    def shrink(self, slots: int) -> int:
        """Use no more than ``slots`` places from now on; how many chunks had to go.

        What is pinned or being filled stays until it is let go of.

        Raises:
            CacheError: it has never had so many, or not one is left.
        """
        if not 1 <= slots <= self.slots:
            raise CacheError(f"{self.name}: {slots} of {self.slots} places cannot be kept")
        self._allowed = slots
        before = self.evictions
        while len(self._cached) + len(self._reserved) > slots and self._evict_one(b""):
            pass
        return self.evictions - before

    def stats(self) -> dict[str, Any]:
        """Slots by state, and counters since the start."""
        return {
            "slots": self.slots,
            "spare": self.spare,
            "free": self._unused,
            "cached": len(self._cached),
            "reserved": len(self._reserved),
            "leaving": len(self._leaving),
            "owners": self._quota.places(),
            "pinned": sum(slot.pins > 0 for slot in self._places),
            "hits": self.hits,
            "misses": self.misses,
            "evictions": self.evictions,
        }

    def check_integrity(self, deep: bool = False) -> None:
        """INV-5: free + cached + reserved + leaving = all places, and all agree.

        Args:
            deep: also compare every readable chunk with its checksums.

        Raises:
            CacheError: the books do not balance; the message says which.
            DamagedChunks: they do, and bytes are not what their checksums say.
        """
        leaving = [self._places[i] for i in self._leaving]
        groups: dict[State, Collection[Slot]] = {
            "free": self._free,
            "cached": self._cached.values(),
            "reserved": self._reserved.values(),
            "leaving": leaving,
        }
        check_places(self.name, groups, len(self._places))
        if len(self._cached) + len(self._reserved) > self.slots:
            raise CacheError(f"{self.name}: cached + reserved is more than its {self.slots} slots")
        if sorted(self._policy.keys()) != sorted(self._cached):
            raise CacheError(
                f"{self.name}: the eviction policy does not know exactly the cached chunks"
            )
        if self._quota.keys() != self._cached.keys() | self._reserved.keys():
            raise CacheError(f"{self.name}: quotas do not count exactly what is here")
        if deep and (found := self.damaged()):
            raise DamagedChunks({self.name: found})

    def damaged(self) -> dict[bytes, str]:
        """Readable chunks whose bytes are not what they say, and what is wrong with each.

        Raises:
            CacheError: nobody can look.
        """
        said = {key: self._wrong_with(key, slot) for key, slot in self._cached.items()}
        return {key: wrong for key, wrong in said.items() if wrong}

    # -- inside ----------------------------------------------------------------

    @property
    def _crowded(self) -> bool:
        """Must somebody go before somebody comes?"""
        return len(self._cached) + len(self._reserved) >= self._allowed

    @property
    def _unused(self) -> int:
        """Places that hold nothing, those not made yet included."""
        return self.slots + self.spare - len(self._places) + len(self._free)

    def _wrong_with(self, key: bytes, slot: Slot) -> str:
        """What is wrong with the bytes of a cached chunk; empty when nothing is."""
        raise NotImplementedError

    def _to_free(self, slot: Slot) -> None:
        slot.state = "free"
        slot.header = None
        self._free.append(slot)
        self._tell_room()

    def _pinned(self, slot: Slot, header: ChunkHeader) -> Entry:
        slot.pins += 1
        return Entry(slot, header, self.name, self._unpin)

    def _unpin(self, slot: Slot) -> None:
        slot.pins -= 1
        if slot.state == "leaving" and not slot.pins:
            del self._leaving[slot.index]
            self._to_free(slot)
        elif not slot.pins:
            self._tell_room()

    def _evict_one(self, coming: bytes, owner: str = "") -> bool:
        """One chunk goes, if one can; of ``owner``, if there is one."""

        def may_go(key: bytes) -> bool:
            mine = not owner or self._quota.owns(owner, key)
            return mine and not self._cached[key].pins

        victim = self._policy.evict(coming, may_go)
        if victim is None:
            return False
        if victim not in self._cached or not may_go(victim):
            raise CacheError(f"{self.name}: the eviction policy gave up a chunk that may not go")
        slot = self._cached[victim]
        if self.offer is not None and slot.header is not None:
            # Its own place is what the newcomer gets, unless there is another.
            self.offer(victim, self._pinned(slot, slot.header) if self._unused else None)
        self._leave_cached(victim)
        self.evictions += 1
        if self.on_evict is not None:
            self.on_evict(victim, slot.index)
        return True

    def _leave_cached(self, key: bytes) -> None:
        slot = self._cached.pop(key)
        self._quota.left(key)
        if slot.pins:
            slot.state = "leaving"
            self._leaving[slot.index] = None
        else:
            self._to_free(slot)

    def _leave_reserved(self, slot: Slot) -> None:
        if slot.state != "reserved" or self._reserved.get(slot.key) is not slot:
            raise CacheError(f"slot {slot.index} is {slot.state}, not reserved")
        del self._reserved[slot.key]

    def _tell_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _settle(self, slot: Slot, cause: str) -> None:
        if slot.settled is not None and not slot.settled.done():
            slot.settled.set_result(cause)
