"""A fault of the user's own: what it does is in the class it names."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from geokv.foreign import REFERENCE
from geokv.scenario.timeline.event import Event, Wait


class ForeignFault(Event):
    """``fault: module:Class``, a subclass of ``geokv.Fault``; its ``self.event`` is this."""

    fault: Annotated[str, Field(pattern=REFERENCE)]
    link: str | None = None
    site: str | None = None
    tenant: str | None = None
    for_: Wait | None = Field(default=None, alias="for")
    """Until it is healed; it is not when unset."""
    options: dict[str, Any] = Field(default_factory=dict, alias="with")
    """Whatever the class asks for, under ``with``."""

    @property
    def heals(self) -> bool:
        return self.for_ is not None

    @property
    def lasts_s(self) -> float | None:
        return self.for_
