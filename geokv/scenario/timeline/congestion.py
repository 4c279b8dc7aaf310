"""Faults of load: others want the same line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.scenario.timeline.event import Event, Lasting, Share
from geokv.units import Fraction, Size


class Background(Lasting):
    """Traffic of others on a link."""

    fault: Literal["background"]
    link: str
    kind: Literal["tcp", "udp"] = "udp"
    share: Annotated[Fraction, Field(ge=0, le=1)]
    """Of the line's rate, asked for; TCP yields, UDP does not. 0 sends nothing."""
    flows: Annotated[int, Field(ge=1, le=256)] = 1
    direction: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*-to-[a-z][a-z0-9]*$")] | None = None
    """``a-to-b``; both when unset."""


class Incast(Event):
    """Several sites send to one at the same moment."""

    fault: Literal["incast"]
    to: str
    from_: Annotated[list[str], Field(min_length=1, alias="from")]
    bytes: Annotated[Size, Field(gt=0)]
    """Each, as of the deployment the run stands for (the byte scale divides it)."""

    @property
    def heals(self) -> bool:
        """It is over when everything has come."""
        return True

    @property
    def lasts_s(self) -> float | None:
        return 0.0


class TenantLoad(Lasting):
    """Another tenant fetches through the cache itself."""

    fault: Literal["tenant-load"]
    tenant: str
    from_: str = Field(alias="from")
    """Where its chunks are."""
    to: str
    """Who fetches them."""
    share: Share
    """Of the path's rate."""
