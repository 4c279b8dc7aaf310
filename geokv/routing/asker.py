"""The site that is asked serves."""

from __future__ import annotations

from collections.abc import Sequence

from geokv.routing.policy import Arrival, SiteLoad


class Asker:
    """Every request is served where it came to; what is elsewhere is fetched."""

    def __init__(self, door: str, sites: Sequence[str]) -> None:
        self._door = door

    def choose(self, request: Arrival, sites: Sequence[SiteLoad]) -> str:
        return self._door
