"""Which site serves a request of a stream."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from geokv import foreign
from geokv.config import Strict

OURS = ("asker", "round-robin", "least-loaded")
"""Routing policies that come with geokv."""


def _known(name: str) -> str:
    return foreign.well_formed(name, OURS, foreign.ROUTING)


class Routing(Strict):
    """Every door decides by itself, from what it sent and what came back."""

    policy: Annotated[str, AfterValidator(_known)] = "asker"
    """A name, or ``module:Class`` of one of your own."""
    sites: list[str] = Field(default_factory=list)
    """Who may serve; all when empty."""
