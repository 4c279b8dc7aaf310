"""Which site serves a request: one policy per file, or one of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from geokv import foreign
from geokv.errors import ConfigError
from geokv.routing.asker import Asker
from geokv.routing.least_loaded import LeastLoaded
from geokv.routing.policy import Arrival, RoutingPolicy, SiteLoad
from geokv.routing.round_robin import RoundRobin

POLICIES: Mapping[str, Callable[[str, Sequence[str]], RoutingPolicy]] = MappingProxyType(
    {"asker": Asker, "round-robin": RoundRobin, "least-loaded": LeastLoaded}
)
"""Routing policies by name; each is made for one door, with the sites it may choose from."""


def make_routing(name: str, door: str, sites: Sequence[str]) -> RoutingPolicy:
    """A fresh policy for the door of one site.

    Args:
        name: one of ``POLICIES``, one registered as ``geokv.routing``, or ``module:Class``.

    Raises:
        ConfigError: there is no policy of that name, or it is none.
    """
    if name in POLICIES:
        return POLICIES[name](door, sites)
    factory = foreign.load(foreign.ROUTING, name)
    try:
        policy: RoutingPolicy = factory(door, tuple(sites))
    except Exception as error:
        raise ConfigError(
            f"routing policy {name}: cannot be made: {type(error).__name__}: {error}",
            "it is called with the site of its door and the sites it may choose from",
        ) from error
    if not callable(getattr(policy, "choose", None)):
        raise ConfigError(
            f"routing policy {name}: has no method choose",
            "geokv.RoutingPolicy says what a policy has",
        )
    return policy


def check_routing(name: str, door: str, sites: Sequence[str]) -> None:
    """Ask a policy that is no part of geokv about two requests.

    Raises:
        ConfigError: it cannot be had, raises, or names no site that it may choose.
    """
    if name in POLICIES:
        return
    policy = make_routing(name, door, sites)
    loads = [SiteLoad(site, sent=0, open=0, errors=0) for site in sites]
    for number in range(2):
        try:
            chosen = policy.choose(Arrival(number, door, "tenant-0", tuple(range(32))), loads)
        except Exception as error:
            raise ConfigError(
                f"routing policy {name}: failed its trial: {type(error).__name__}: {error}"
            ) from error
        if chosen not in sites:
            raise ConfigError(
                f"routing policy {name}: chose {chosen!r}, which is none of {', '.join(sites)}"
            )


__all__ = [
    "POLICIES",
    "Arrival",
    "Asker",
    "LeastLoaded",
    "RoundRobin",
    "RoutingPolicy",
    "SiteLoad",
    "check_routing",
    "make_routing",
]
