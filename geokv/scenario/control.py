"""The negative control of a drill: the same drill with a weakness, which must fail.

A checker that nobody has seen fail proves nothing. So each drill is run once more with
something planted or taken away, and the lines that guard against it must then be broken.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from geokv.config import Strict

JUDGED = (
    "stale",
    "foreign",
    "corrupt",
    "half-written",
    "leaked",
    "doubly-owned",
    "served-after-purge",
    "served-after-revocation",
    "purge-in-time",
    "answered-wrongly",
    "never-answered",
    "directory-converges",
    "integrity",
    "tenant-timing",
    "links",
    "sharing-had-effect",
    "accounted",
)
"""Lines that are judged in every drill (``purge-in-time`` where there is a purge,
``served-after-revocation`` where a key is revoked, ``tenant-timing`` where its probe is asked for).
Beside them there are ``fault-fired:NAME``, ``expect:NAME.PROMISE`` of an event and
``expect:PROMISE`` of the drill."""

_MADE = re.compile(r"^(fault-fired:[a-z][a-z0-9-]*|expect:([a-z][a-z0-9-]*\.)?[a-z0-9_.-]+)$")
SABOTAGE = r"^[a-z][a-z-]{0,39}$"


class Control(Strict):
    """At least one weakness, and the lines that must notice it."""

    sabotage: Annotated[str, Field(pattern=SABOTAGE)] | None = None
    """One of ``geokv/site/sabotage/``: what every site then does wrong."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Path → value: overrides, as ``--set`` takes them."""
    without: list[str] = Field(default_factory=list)
    """Names of events that do not happen."""
    fails: Annotated[list[str], Field(min_length=1)]
    """Judged lines that must be broken."""

    @field_validator("fails")
    @classmethod
    def _known(cls, fails: list[str]) -> list[str]:
        for name in fails:
            if name not in JUDGED and not _MADE.match(name):
                raise ValueError(
                    f"no line is called {name!r} (lines: {', '.join(JUDGED)}, fault-fired:NAME, "
                    "expect:NAME.PROMISE, expect:PROMISE)"
                )
        return fails

    @model_validator(mode="after")
    def _some_weakness(self) -> Control:
        if not (self.sabotage or self.set or self.without):
            raise ValueError("must have a sabotage, something set, or an event it is without")
        return self
