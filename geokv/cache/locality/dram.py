"""The DRAM tier: fixed slots in one arena, nothing readable before it is whole.

A slot goes free -> reserved -> cached -> free. A cached chunk that is dropped while
somebody reads it is *leaving*: unreadable for newcomers, freed with its last pin.
Only the real KV is stored, but capacity counts what the run stands for: every chunk
takes ``layout.wire_bytes`` (full size divided by S) of ``capacity_bytes``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from geokv.cache.layout import ChunkLayout
from geokv.cache.lifetime import EvictionPolicy
from geokv.cache.locality.arena import touched_memory
from geokv.cache.record import ChunkHeader, checksums
from geokv.errors import CacheError, ConfigError
from geokv.units import show_size

State = Literal["free", "reserved", "cached", "leaving"]


class Slot:
    """One place in the arena; owned by whoever reserved it until commit or abort.

    Attributes:
        view: writable memory for the payload, ``layout.real_bytes`` long.
        generation: how often this place has been reserved; a chunk's header carries it.
    """

    def __init__(self, index: int, view: memoryview) -> None:
        self.index = index
        self.view = view
        self.readable = view.toreadonly()
        self.generation = 0
        self.state: State = "free"
        self.key = b""
        self.header: ChunkHeader | None = None
        self.pins = 0
        self.settled: asyncio.Future[str] | None = None


class Entry:
    """A pinned, complete chunk: it cannot change or go away before ``release``."""

    def __init__(self, tier: DramTier, slot: Slot, header: ChunkHeader) -> None:
        self._tier = tier
        self._slot: Slot | None = slot
        self.header = header
        self.view = slot.readable
        self.generation = slot.generation

    def release(self) -> None:
        """Unpin; safe to call again."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._tier._unpin(slot)

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class DramTier:
    """Chunks of one site in host memory.

    Args:
        capacity_bytes: counted in wire bytes per chunk (see the module).
        on_evict: told every key that had to go for room.

    Raises:
        ConfigError: not one chunk fits.
    """

    def __init__(
        self,
        layout: ChunkLayout,
        capacity_bytes: int,
        policy: EvictionPolicy,
        on_evict: Callable[[bytes], None] | None = None,
    ) -> None:
        count = capacity_bytes // layout.wire_bytes
        if count < 1:
            raise ConfigError(
                f"tier.capacity_bytes: {show_size(capacity_bytes)} holds no chunk of "
                f"{show_size(layout.wire_bytes)}",
                "make the tier larger or the chunk smaller",
            )
        self.layout = layout
        self.on_evict = on_evict
        self._policy = policy
        arena = touched_memory(count * layout.real_bytes)
        size = layout.real_bytes
        self._slots = [Slot(i, arena[i * size : (i + 1) * size]) for i in range(count)]
        self._free = list(reversed(self._slots))
        self._cached: dict[bytes, Slot] = {}
        self._reserved: dict[bytes, Slot] = {}
        self._leaving: set[int] = set()
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    # -- writing ---------------------------------------------------------------

    def reserve(self, key: bytes) -> Slot:
        """A slot to fill; the key stays unreadable until ``commit``.

        Raises:
            CacheError: the key is here or on its way (look first: ``get``,
                ``pending``), or every slot is pinned or reserved.
        """
        if key in self._cached or key in self._reserved:
            raise CacheError(f"chunk {key.hex()} is already here or on its way")
        if not self._free and not self._evict_one():
            raise CacheError(
                f"no room: all {len(self._slots)} slots are pinned or being filled",
                "make the tier larger or let fewer requests run at once",
            )
        slot = self._free.pop()
        slot.generation += 1
        slot.state = "reserved"
        slot.key = key
        slot.header = None
        slot.settled = None
        self._reserved[key] = slot
        return slot

    def commit(self, slot: Slot, header: ChunkHeader) -> None:
        """Make a filled slot readable under its key. It never changes again.

        Raises:
            CacheError: the slot is not reserved, or the header is another chunk's.
        """
        self._leave_reserved(slot)
        if header.key != slot.key:
            self._settle(slot, "mismatch")
            self._to_free(slot)
            raise CacheError(f"header of {header.key.hex()} for a slot of {slot.key.hex()}")
        slot.state = "cached"
        slot.header = header
        self._cached[slot.key] = slot
        self._policy.added(slot.key)
        self._settle(slot, "")

    def abort(self, slot: Slot, cause: str = "aborted") -> None:
        """Give a reserved slot back; those who wait for it learn ``cause``.

        Raises:
            CacheError: the slot is not reserved.
        """
        self._leave_reserved(slot)
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

    # -- reading ---------------------------------------------------------------

    def __contains__(self, key: bytes) -> bool:
        return key in self._cached

    def __len__(self) -> int:
        return len(self._cached)

    @property
    def slots(self) -> int:
        """How many chunks fit."""
        return len(self._slots)

    def get(self, key: bytes) -> Entry | None:
        """The chunk, pinned, or ``None``; counted as a hit or a miss."""
        slot = self._cached.get(key)
        if slot is None or slot.header is None:
            self.misses += 1
            return None
        self.hits += 1
        slot.pins += 1
        self._policy.used(key)
        return Entry(self, slot, slot.header)

    def exposed(self, key: bytes) -> memoryview:
        """The memory of a readable chunk, writable, past every check.

        Only for drills that damage it on purpose: what is written here is served as it is,
        until ``check_integrity(deep=True)`` names it.

        Raises:
            CacheError: it is not here.
        """
        if key not in self._cached:
            raise CacheError(f"chunk {key.hex()} is not here")
        return self._cached[key].view

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
            slot = self._cached.pop(key)
            self._policy.removed(key)
            if slot.pins:
                slot.state = "leaving"
                self._leaving.add(slot.index)
            else:
                self._to_free(slot)
        return gone

    def stats(self) -> dict[str, int]:
        """Slots by state, and counters since the start."""
        return {
            "slots": len(self._slots),
            "free": len(self._free),
            "cached": len(self._cached),
            "reserved": len(self._reserved),
            "leaving": len(self._leaving),
            "pinned": sum(slot.pins > 0 for slot in self._slots),
            "hits": self.hits,
            "misses": self.misses,
            "evictions": self.evictions,
        }

    def check_integrity(self, deep: bool = False) -> None:
        """INV-5: free + cached + reserved + leaving = total, and all agree.

        Args:
            deep: also compare every readable chunk with its checksums.

        Raises:
            CacheError: the books do not balance; the message says which.
        """
        counts = (len(self._free), len(self._cached), len(self._reserved), len(self._leaving))
        if sum(counts) != len(self._slots):
            raise CacheError(
                "free + cached + reserved + leaving = "
                f"{' + '.join(map(str, counts))} is not {len(self._slots)}"
            )
        for group, state in (
            (self._free, "free"),
            (self._cached.values(), "cached"),
            (self._reserved.values(), "reserved"),
            ([self._slots[i] for i in self._leaving], "leaving"),
        ):
            for slot in group:
                if slot.state != state:
                    raise CacheError(f"slot {slot.index} says {slot.state}, is kept as {state}")
                if slot.pins < 0 or (slot.pins and state in {"free", "reserved"}):
                    raise CacheError(f"slot {slot.index} is {state} with {slot.pins} pins")
        if sorted(self._policy.victims()) != sorted(self._cached):
            raise CacheError("the eviction policy does not know exactly the cached chunks")
        if deep:
            for key, slot in self._cached.items():
                header = slot.header
                if header is None or header.key != key:
                    raise CacheError(f"chunk {key.hex()} has another chunk's header")
                if checksums(self.layout, slot.readable) != header.checksums:
                    raise CacheError(f"chunk {key.hex()} does not match its checksums")

    # -- inside ----------------------------------------------------------------

    def _evict_one(self) -> bool:
        victim = next((k for k in self._policy.victims() if not self._cached[k].pins), None)
        if victim is None:
            return False
        self.drop([victim])
        self.evictions += 1
        if self.on_evict is not None:
            self.on_evict(victim)
        return True

    def _leave_reserved(self, slot: Slot) -> None:
        if slot.state != "reserved" or self._reserved.get(slot.key) is not slot:
            raise CacheError(f"slot {slot.index} is {slot.state}, not reserved")
        del self._reserved[slot.key]

    def _to_free(self, slot: Slot) -> None:
        slot.state = "free"
        slot.header = None
        self._free.append(slot)

    def _settle(self, slot: Slot, cause: str) -> None:
        if slot.settled is not None and not slot.settled.done():
            slot.settled.set_result(cause)

    def _unpin(self, slot: Slot) -> None:
        slot.pins -= 1
        if slot.state == "leaving" and not slot.pins:
            self._leaving.discard(slot.index)
            self._to_free(slot)
