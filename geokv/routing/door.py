"""The doors of all sites: each with its own policy, and its own count of what it sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from geokv.errors import RunError
from geokv.routing import make_routing
from geokv.routing.policy import Arrival, RoutingPolicy, SiteLoad


class Doors:
    """Chooses, and remembers what became of it.

    Args:
        policy: as the scenario names it.
        sites: who may serve.
    """

    def __init__(self, policy: str, sites: Sequence[str]) -> None:
        self._policy = policy
        self._sites = tuple(sites)
        self._doors: dict[str, RoutingPolicy] = {}
        self._sent: Counter[tuple[str, str]] = Counter()
        self._open: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[tuple[str, str]] = Counter()

    def choose(self, request: Arrival) -> str:
        """The site that serves it, counted as sent there.

        Raises:
            RunError: the policy chose a site that may not serve.
        """
        door = request.door
        if door not in self._doors:
            self._doors[door] = make_routing(self._policy, door, self._sites)
        loads = [
            SiteLoad(site, self._sent[door, site], self._open[door, site], self._errors[door, site])
            for site in self._sites
        ]
        site = self._doors[door].choose(request, loads)
        if site not in self._sites and site != door:
            raise RunError(
                f"routing policy {self._policy}: chose {site!r} for request {request.number}, "
                f"which is none of {', '.join(self._sites)}"
            )
        self._sent[door, site] += 1
        self._open[door, site] += 1
        return site

    def ended(self, door: str, site: str, answered: bool) -> None:
        """A request that was sent there has ended."""
        self._open[door, site] -= 1
        self._errors[door, site] = 0 if answered else self._errors[door, site] + 1
