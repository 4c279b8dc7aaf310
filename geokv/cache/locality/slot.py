"""One place of a tier, and a chunk in it that somebody holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from geokv.cache.record import ChunkHeader
from geokv.errors import CacheError

State = Literal["free", "reserved", "cached", "leaving"]
_NOTHING = memoryview(b"")


class Slot:
    """One place of a tier; owned by whoever reserved it until commit or abort.

    Attributes:
        view: writable memory for the payload, ``layout.real_bytes`` long, where the
            tier is memory; else empty.
        generation: how often this place has been reserved; a chunk's header carries it.
        uses: reads that counted as hits since the chunk came.
        fresh: whoever brought the chunk here has not read it yet.
    """

    def __init__(self, index: int, view: memoryview = _NOTHING) -> None:
        self.index = index
        self.view = view
        self.readable = view.toreadonly()
        self.generation = 0
        self.state: State = "free"
        self.key = b""
        self.header: ChunkHeader | None = None
        self.pins = 0
        self.uses = 0
        self.fresh = False
        self.settled: asyncio.Future[str] | None = None


class Entry:
    """A pinned, complete chunk: it cannot change or go away before ``release``.

    Attributes:
        uses: how many reads have counted as hits since it came, this one included.
        source: how it came to its reader: the site that sent it, or the tier it was in.
    """

    def __init__(
        self, slot: Slot, header: ChunkHeader, tier: str, unpin: Callable[[Slot], None]
    ) -> None:
        self._unpin = unpin
        self._slot: Slot | None = slot
        self.header = header
        self.view = slot.readable
        self.generation = slot.generation
        self.place = slot.index
        self.uses = slot.uses
        self.source = tier

    def release(self) -> None:
        """Unpin; safe to call again."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._unpin(slot)

    @property
    def leaving(self) -> bool:
        """Was the chunk dropped or evicted since it was pinned?"""
        return self._slot is None or self._slot.state == "leaving"

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def check_places(name: str, groups: Mapping[State, Collection[Slot]], total: int) -> None:
    """Every place is in exactly one group, and says so itself (INV-5).

    Args:
        name: of the tier, for messages.

    Raises:
        CacheError: naming what does not balance.
    """
    if sum(map(len, groups.values())) != total:
        counts = " + ".join(str(len(group)) for group in groups.values())
        raise CacheError(f"{name}: {' + '.join(groups)} = {counts} is not {total}")
    for state, group in groups.items():
        for slot in group:
            where = f"{name}: slot {slot.index}"
            if slot.state != state:
                raise CacheError(f"{where} says {slot.state}, is kept as {state}")
            if slot.pins < 0 or (slot.pins and state in {"free", "reserved"}):
                raise CacheError(f"{where} is {state} with {slot.pins} pins")
