"""What the door of a site asks of a routing policy.

Each door decides by itself, from what it has sent and what came back: what other doors do, and
what goes on inside a site, it would have to be told over a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Arrival(NamedTuple):
    """A request at a door.

    Attributes:
        number: of the stream, from 0.
        door: the site it came to.
        tenant: who asks.
        tokens: its prompt.
    """

    number: int
    door: str
    tenant: str
    tokens: tuple[int, ...]


class SiteLoad(NamedTuple):
    """What a door knows of a site.

    Attributes:
        sent: requests that this door has sent there.
        open: those of them that have not ended.
        errors: how many of them in a row ended without an answer; 0 after one that has.
    """

    site: str
    sent: int
    open: int
    errors: int


class RoutingPolicy(Protocol):
    """Chooses the site that serves a request; made anew for every door of every cell, by
    ``Class(door, sites)``."""

    def choose(self, request: Arrival, sites: Sequence[SiteLoad]) -> str:
        """The name of one of ``sites``, which are in the topology's order."""
