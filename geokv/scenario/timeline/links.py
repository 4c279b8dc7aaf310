"""Faults of links: what the fibre, the path or the line does."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from geokv.lab.topology import HALF_EARTH_KM, LossModel
from geokv.scenario.timeline.event import Lasting, Share, Wait, one_of
from geokv.units import Rate, Seconds


class LinkCut(Lasting):
    """The carrier of both directions is gone; what is on the way is lost."""

    fault: Literal["link-cut"]
    link: str


class LinkOneWayCut(Lasting):
    """Nothing that ``from`` sends over the link arrives; the other direction works."""

    fault: Literal["link-one-way-cut"]
    link: str
    from_: str = Field(alias="from")


class LinkFlap(Lasting):
    """Cut and mended again and again."""

    fault: Literal["link-flap"]
    link: str
    times: Annotated[int, Field(ge=1, le=10_000)]
    down: Wait
    up: Wait

    @model_validator(mode="after")
    def _its_own_length(self) -> LinkFlap:
        if self.for_ is not None:
            raise ValueError("for: follows from times, down and up; leave it out")
        return self

    @property
    def lasts_s(self) -> float | None:
        return self.times * (self.down + self.up)


class LinkDegrade(Lasting):
    """The link becomes worse without going away."""

    fault: Literal["link-degrade"]
    link: str
    rate: Annotated[Rate, Field(gt=0)] | None = None
    """Line rate instead of the link's."""
    delay: Annotated[Seconds, Field(gt=0, le=10)] | None = None
    """Added to each direction."""
    jitter: Annotated[Seconds, Field(ge=0, le=2)] | None = None
    loss: Share | None = None
    loss_model: LossModel | None = None
    corrupt: Share | None = None
    reorder: Annotated[Share, Field(lt=1)] | None = None
    duplicate: Share | None = None

    @model_validator(mode="after")
    def _something(self) -> LinkDegrade:
        named = ("rate", "delay", "jitter", "loss", "loss_model", "corrupt", "reorder", "duplicate")
        if all(getattr(self, name) is None for name in named):
            raise ValueError(f"must change at least one of {', '.join(named)}")
        return self


class Partition(Lasting):
    """Sites of different groups cannot reach each other, and nobody is told."""

    fault: Literal["partition"]
    groups: Annotated[list[Annotated[list[str], Field(min_length=1)]], Field(min_length=2)]


class SilentDrop(Lasting):
    """Packets vanish and nobody is told: no carrier is lost, no connection is reset."""

    fault: Literal["silent-drop"]
    link: str | None = None
    """Both directions of it; or ``from`` and ``to``."""
    from_: str | None = Field(default=None, alias="from")
    """All that this site sends …"""
    to: str | None = None
    """… to this one."""

    @model_validator(mode="after")
    def _one_place(self) -> SilentDrop:
        one_of(self, "link", "from_")
        if (self.from_ is None) != (self.to is None):
            raise ValueError("from: and to belong together")
        return self


class PathSwitch(Lasting):
    """The optical path moves to another fibre: an outage, then another length."""

    fault: Literal["path-switch"]
    link: str
    outage: Annotated[Seconds, Field(ge=0, le=3600)] = 0.05
    km: Annotated[float, Field(ge=0, le=HALF_EARTH_KM)]
    """Length afterwards; it goes back, with an outage again, when the fault heals."""
