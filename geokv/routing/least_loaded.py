"""The site with the fewest open requests."""

from __future__ import annotations

from collections.abc import Sequence

from geokv.routing.policy import Arrival, SiteLoad


class LeastLoaded:
    """Fewest requests of this door that have not ended; of equals the own site, then the first.

    A site whose last requests all ended without an answer counts as so many more open ones: it
    is tried again when the others are as busy.
    """

    def __init__(self, door: str, sites: Sequence[str]) -> None:
        self._door = door

    def choose(self, request: Arrival, sites: Sequence[SiteLoad]) -> str:
        return min(sites, key=lambda one: (one.open + one.errors, one.site != self._door)).site
