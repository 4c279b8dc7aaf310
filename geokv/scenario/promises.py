"""Promises about how a swept value changes what is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.scenario.sweep import Value

Where = dict[str, Value]
"""Title of an axis → its value: the cells that are meant; all of them when empty."""


class ClosedForm(Strict):
    """The fetch of every remote hit takes what the closed form says.

    ``from_rtt_ms`` leaves out links whose round trip is shorter than what asking for a transfer
    costs by itself, which the form does not know.
    """

    percent: Annotated[float, Field(gt=0)]
    from_rtt_ms: Annotated[float, Field(ge=0)] = 0.0


class Overlap(Strict):
    """Where chunks come in layer groups, a remote hit takes at most ``max(load, compute)``, one
    group and the round trips (``measure/closed_form.py``), and ``percent`` of that more."""

    percent: Annotated[float, Field(ge=0)]


class BreakEven(Strict):
    """The line rate from which on fetching beats computing is the one the balance of bytes,
    round trips and charged prefill gives."""

    percent: Annotated[float, Field(gt=0)]


class Change(Strict):
    """What becomes of a measured thing between two values of an axis, all else equal."""

    of: Literal["goodput", "fetch", "ttft", "ttft_p99"]
    """Of the median remote hit, or of the slowest in a hundred; of a drill with
    ``workload.probe: recompute`` of what is cached elsewhere."""
    along: str
    """Title of the axis."""
    start: Value
    end: Value
    at_least: Annotated[float, Field(gt=0)] | None = None
    """The factor from ``start`` to ``end``, in every pair of cells that ``where`` leaves."""
    at_most: Annotated[float, Field(gt=0)] | None = None
    where: Where = Field(default_factory=dict)

    @model_validator(mode="after")
    def _some_limit(self) -> Change:
        if self.at_least is None and self.at_most is None:
            raise ValueError("at_least: or at_most must be given")
        return self
