"""First in, first out: reads change nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from geokv.cache.lifetime.policy import MayGo


class Fifo:
    """Who came first goes first."""

    def __init__(self) -> None:
        self._order: OrderedDict[bytes, None] = OrderedDict()

    def added(self, key: bytes) -> None:
        self._order[key] = None

    def used(self, key: bytes) -> None:
        return None

    def chained(self, keys: Sequence[bytes]) -> None:
        return None

    def removed(self, key: bytes) -> None:
        del self._order[key]

    def evict(self, coming: bytes, may_go: MayGo) -> bytes | None:
        victim = next((key for key in self._order if may_go(key)), None)
        if victim is not None:
            del self._order[victim]
        return victim

    def keys(self) -> Iterator[bytes]:
        return iter(self._order)
