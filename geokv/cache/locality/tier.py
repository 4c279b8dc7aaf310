"""What every tier of a site can do, whatever its chunks lie on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from geokv.cache.locality.slot import Entry, Slot
from geokv.cache.record import ChunkHeader


class Tier(Protocol):
    """Chunks by key. Nothing is readable before ``commit``; what is pinned stays.

    How bytes get in and out is the tier's own: ``DramTier`` slots and entries have
    memory, ``DiskTier`` has ``write`` and ``read``.
    """

    name: ClassVar[str]

    def __contains__(self, key: bytes) -> bool: ...

    def __len__(self) -> int: ...

    def reserve(self, key: bytes, owner: str = "") -> Slot:
        """A place to fill. Raises ``CacheError`` if there is none, or the key is here."""

    def commit(self, slot: Slot, header: ChunkHeader, fresh: bool = False) -> None:
        """Make it readable."""

    def abort(self, slot: Slot, cause: str = "aborted") -> None:
        """Give it back."""

    def pending(self, key: bytes) -> asyncio.Future[str] | None:
        """The end of a filling that is under way: ``""`` or the cause of its failure."""

    def get(self, key: bytes) -> Entry | None:
        """Pin for a reader; counted."""

    def place(self, key: bytes) -> int:
        """Number of the place of a readable chunk, or -1."""

    def keys(self) -> list[bytes]:
        """Of all readable chunks."""

    def drop(self, keys: Iterable[bytes] | None = None) -> list[bytes]:
        """Make unreadable at once; which were here."""

    def stats(self) -> dict[str, Any]:
        """Everything countable, JSON-ready."""

    def check_integrity(self, deep: bool = False) -> None:
        """Raises ``CacheError`` if the books do not balance (INV-5)."""

    def damaged(self) -> dict[bytes, str]:
        """Readable chunks whose bytes are not what they say, and what is wrong with each."""
