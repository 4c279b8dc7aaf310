"""One site after the other."""

from __future__ import annotations

from collections.abc import Sequence

from geokv.routing.policy import Arrival, SiteLoad


class RoundRobin:
    """Each door begins with its own site, so that doors do not march in step."""

    def __init__(self, door: str, sites: Sequence[str]) -> None:
        self._next = sites.index(door) if door in sites else 0

    def choose(self, request: Arrival, sites: Sequence[SiteLoad]) -> str:
        chosen = sites[self._next % len(sites)].site
        self._next += 1
        return chosen
