"""What a drill promises beside its invariants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from geokv.config import Strict
from geokv.units import Fraction, Seconds

Count = Annotated[int, Field(ge=0)]


class DrillPromises(Strict):
    """Each that is set is one more judged line. INV-1 to INV-6 are judged whatever stands here."""

    answered: Annotated[Fraction, Field(ge=0, le=1)] | None = None
    """Share of the requests that were answered (and not refused, and no error), at least."""
    ttft_p99_at_most: Annotated[Seconds, Field(gt=0)] | None = None
    hit_rate_at_least: Annotated[Fraction, Field(ge=0, le=1)] | None = None
    """Share of the answered requests that found something cached."""
    refused_at_least: Annotated[int, Field(ge=1)] | None = None
    """Requests that were turned away at the door."""
    ttft_rise_percent_at_most: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict
    )
    """Site → by how much the median and the slowest TTFT of what it was asked while any fault
    lasted may be above those of what had ended before the first."""
    misses_at_least: dict[str, Count] = Field(default_factory=dict)
    """Cause → chunks that were missed for it."""
    misses_at_most: dict[str, Count] = Field(default_factory=dict)
