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
        """``key`` goes to the end of the queue."""
        self._order[key] = None

    def used(self, key: bytes) -> None:
        """Nothing moves."""
        return None

    def chained(self, keys: Sequence[bytes]) -> None:
        """Nothing moves."""
        return None

    def removed(self, key: bytes) -> None:
        """``key`` leaves the queue, from wherever it stands."""
        del self._order[key]

    def evict(self, coming: bytes, may_go: MayGo) -> bytes | None:
        """Take the first key of the queue that may go; None when none may."""
        victim = next((key for key in self._order if may_go(key)), None)
        if victim is not None:
            del self._order[victim]
        return victim

    def keys(self) -> Iterator[bytes]:
        """The queue, first to go first."""
        return iter(self._order)
