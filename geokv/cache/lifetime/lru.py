"""Least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from geokv.cache.lifetime.policy import MayGo


class Lru:
    """Exact LRU over adds and reads; of one prefix the tail goes before the head."""

    def __init__(self) -> None:
        self._order: OrderedDict[bytes, None] = OrderedDict()

    def added(self, key: bytes) -> None:
        self._order[key] = None

    def used(self, key: bytes) -> None:
        self._order.move_to_end(key)

    def chained(self, keys: Sequence[bytes]) -> None:
        for key in reversed(keys):
            if key in self._order:
                self._order.move_to_end(key)

    def removed(self, key: bytes) -> None:
        del self._order[key]

    def evict(self, coming: bytes, may_go: MayGo) -> bytes | None:
        victim = next((key for key in self._order if may_go(key)), None)
        if victim is not None:
            del self._order[victim]
        return victim

    def keys(self) -> Iterator[bytes]:
        return iter(self._order)
