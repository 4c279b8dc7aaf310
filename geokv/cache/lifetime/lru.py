"""Least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class Lru:
    """Exact LRU over adds and reads."""

    def __init__(self) -> None:
        self._order: OrderedDict[bytes, None] = OrderedDict()

    def added(self, key: bytes) -> None:
        self._order[key] = None

    def used(self, key: bytes) -> None:
        self._order.move_to_end(key)

    def removed(self, key: bytes) -> None:
        del self._order[key]

    def victims(self) -> Iterator[bytes]:
        return iter(self._order)
