"""What every event of a drill's timeline has: when, for how long, and what must follow."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

from pydantic import Field, field_validator, model_validator

from geokv.config import Strict
from geokv.units import Fraction, Seconds

NAME = r"^[a-z][a-z0-9-]{0,39}$"
_CONDITION = re.compile(
    r"^(?:requests\.(?P<what>sent|done) *>= *(?P<least>[0-9]+)"
    r"|faults\.(?P<fault>[a-z][a-z0-9-]*)\.(?P<state>took_effect|healed))$"
)

Share = Annotated[Fraction, Field(gt=0, le=1)]
Wait = Annotated[Seconds, Field(gt=0, le=3600)]


class Condition(NamedTuple):
    """What an event waits for.

    Attributes:
        requests: ``sent`` or ``done``, with ``at_least`` of them; or
        fault: the name of an earlier event, with its ``state``: ``took_effect`` or ``healed``.
    """

    requests: str | None
    at_least: int
    fault: str | None
    state: str


def parse_condition(text: str) -> Condition:
    """``requests.done >= 20``, ``faults.cut.healed``.

    Raises:
        ValueError: neither.
    """
    match = _CONDITION.match(text.strip())
    if match is None:
        raise ValueError(
            "must be requests.sent >= N, requests.done >= N, faults.NAME.took_effect or "
            f"faults.NAME.healed, got {text!r}"
        )
    return Condition(match["what"], int(match["least"] or 0), match["fault"], match["state"] or "")


class Recovery(Strict):
    """What must follow a fault, each one judged line. Times count from the moment it was really
    seen to take effect (``detected_within``, ``rerouted_within``) or to have healed (the rest);
    of a fault that never heals all count from the former."""

    detected_within: Wait | None = None
    """Some site marked a peer of the fault down, or lost something to it."""
    rerouted_within: Wait | None = None
    """A fetch came over another way, or from another site."""
    first_good_within: Wait | None = None
    """A right answer to a request that was sent after it."""
    hit_rate_back_within: Wait | None = None
    """The share of requests that found something cached is what it was before."""
    ttft_back_within: Wait | None = None
    """TTFT is within 5 % of what it was before."""
    disk_back_within: Wait | None = None
    """Of a disk: a chunk went down to it, and one came up from it."""
    fetches_lost_at_most: Annotated[int, Field(ge=0)] | None = None
    """Fetches that ended without their chunk."""
    fetches_lost_at_least: Annotated[int, Field(ge=1)] | None = None
    """A fault that meets no fetch shows nothing of what becomes of one."""


class Event(Strict):
    """One fault. It begins at a time or on a condition, exactly one of both."""

    fault: str
    """Its kind."""
    name: Annotated[str, Field(pattern=NAME)] | None = None
    """Unique in the timeline; the kind of the fault when unset."""
    at: Annotated[Seconds, Field(ge=0, le=86_400)] | None = None
    """After the first request is due."""
    when: str | None = None
    """``requests.done >= 20``, ``faults.cut.healed`` …"""
    after: Annotated[Seconds, Field(ge=0, le=86_400)] = 0.0
    """How long after ``when`` has come true."""
    expect: Recovery = Field(default_factory=Recovery)

    @field_validator("when")
    @classmethod
    def _readable(cls, when: str | None) -> str | None:
        if when is not None:
            parse_condition(when)
        return when

    @model_validator(mode="after")
    def _one_moment(self) -> Event:
        if (self.at is None) == (self.when is None):
            raise ValueError("must have either at or when")
        if self.when is None and self.after:
            raise ValueError("after: belongs to when; with at, write the sum")
        return self

    @property
    def title(self) -> str:
        """Its name in records, conditions and judged lines."""
        return self.name or self.fault

    @property
    def condition(self) -> Condition | None:
        """``when``, taken apart."""
        return None if self.when is None else parse_condition(self.when)

    @property
    def heals(self) -> bool:
        """Whether there is a time after it: an end that the runner brings about, or waits for."""
        return False

    @property
    def lasts_s(self) -> float | None:
        """Seconds from taking effect to being healed; None is until the stream has ended."""
        return None


class Lasting(Event):
    """A fault that is there for a while and is then taken back."""

    for_: Wait | None = Field(default=None, alias="for")
    """How long; unset is until the stream has ended."""

    @property
    def heals(self) -> bool:
        return True

    @property
    def lasts_s(self) -> float | None:
        return self.for_


def one_of(event: Any, *names: str) -> None:
    """Raises ValueError unless exactly one of these fields is set."""
    given = [name for name in names if getattr(event, name) is not None]
    if len(given) != 1:
        raise ValueError(f"must have exactly one of {', '.join(name.strip('_') for name in names)}")
