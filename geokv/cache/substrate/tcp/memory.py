"""Registered memory as peers reach it: by segment and key, inside its bounds."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from geokv.cache.substrate.tcp.wire import Place


@dataclass(frozen=True)
class Exposed:
    """One segment. Whoever has its key was told of it, and nobody else can name it."""

    key: bytes
    view: memoryview


class Memory:
    """What one site exposes, and who is told of notices.

    Attributes:
        on_notice: called with (peer, notice).
    """

    def __init__(self) -> None:
        self.segments: dict[int, Exposed] = {}
        self.on_notice: Callable[[str, bytes], None] | None = None

    def views(self, places: Sequence[Place]) -> list[memoryview] | str:
        """The memory of ``places``, or ``refused``: a segment that is not there, a wrong
        key or a place outside. The answer is the same for all three."""
        views = []
        for place in places:
            segment = self.segments.get(place.segment)
            if segment is None or not hmac.compare_digest(segment.key, place.key):
                return "refused"
            end = place.offset + place.n_bytes
            if place.n_bytes < 1 or place.offset < 0 or end > len(segment.view):
                return "refused"
            views.append(segment.view[place.offset : end])
        return views

    def noticed(self, peer: str, notice: bytes) -> None:
        """A peer has told something."""
        if self.on_notice is not None:
            self.on_notice(peer, notice)
