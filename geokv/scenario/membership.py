"""Who notices that a site is gone, and when."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.units import Seconds


class Membership(Strict):
    """Heartbeats between all sites, over the links; a silent peer is down after
    period x misses + one round trip."""

    period: Annotated[Seconds, Field(ge=0.001, le=60)] = 0.1
    misses: Annotated[int, Field(ge=1, le=100)] = 3
    """Beats in a row without an answer."""
    cooldown: Annotated[Seconds, Field(ge=0.001, le=600)] = 1.0
    """Between two tries of a site that is down."""

    @model_validator(mode="after")
    def _no_shorter_cooldown(self) -> Membership:
        if self.cooldown < self.period:
            raise ValueError(f"cooldown: must be ≥ period, got {self.cooldown:g} s")
        return self
