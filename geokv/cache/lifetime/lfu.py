"""Least frequently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from geokv.cache.lifetime.policy import MayGo


class Lfu:
    """Counts reads while a key is here, and forgets the count with the key.

    Among equals the least recently used goes first, and of one prefix the tail.
    """

    def __init__(self) -> None:
        self._uses: dict[bytes, int] = {}
        self._by_uses: dict[int, OrderedDict[bytes, None]] = {}

    def added(self, key: bytes) -> None:
        self._put(key, 0)

    def used(self, key: bytes) -> None:
        uses = self._uses[key]
        self.removed(key)
        self._put(key, uses + 1)

    def chained(self, keys: Sequence[bytes]) -> None:
        for key in reversed(keys):
            if key in self._uses:
                self._by_uses[self._uses[key]].move_to_end(key)

    def removed(self, key: bytes) -> None:
        uses = self._uses.pop(key)
        equals = self._by_uses[uses]
        del equals[key]
        if not equals:
            del self._by_uses[uses]

    def evict(self, coming: bytes, may_go: MayGo) -> bytes | None:
        for uses in sorted(self._by_uses):
            victim = next((key for key in self._by_uses[uses] if may_go(key)), None)
            if victim is not None:
                self.removed(victim)
                return victim
        return None

    def keys(self) -> Iterator[bytes]:
        return iter(self._uses)

    def _put(self, key: bytes, uses: int) -> None:
        self._uses[key] = uses
        self._by_uses.setdefault(uses, OrderedDict())[key] = None
