"""What tenants and their operators do: purge, revoke, storm."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.scenario.timeline.event import Event


class Purge(Event):
    """Everything of a tenant is to be forgotten everywhere."""

    fault: Literal["purge"]
    tenant: str
    site: str
    """Where it is asked for."""


class KeyRevoke(Event):
    """An API key is worth nothing from now on, at every site."""

    fault: Literal["key-revoke"]
    tenant: str


class EvictionStorm(Event):
    """A site's tiers are filled with other things, several times over."""

    fault: Literal["eviction-storm"]
    site: str
    rounds: Annotated[int, Field(ge=1, le=1000)] = 1
