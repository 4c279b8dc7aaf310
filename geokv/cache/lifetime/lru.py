"""Least recently used goes first."""

from __future__ import annotations

from collections.abc import Sequence

from geokv.cache.lifetime.fifo import Fifo


class Lru(Fifo):
    """Exact LRU: a queue whose keys queue again when they are read.

    Of one prefix the tail goes before the head.
    """

    def used(self, key: bytes) -> None:
        """``key`` goes to the end of the queue."""
        self._order.move_to_end(key)

    def chained(self, keys: Sequence[bytes]) -> None:
        """All of them that are here go to the end of the queue, the head of the prefix last."""
        for key in reversed(keys):
            if key in self._order:
                self._order.move_to_end(key)
