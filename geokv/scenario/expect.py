"""What a scenario promises to show. Each promise that is set becomes one judged line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.scenario.drill import DrillPromises
from geokv.scenario.energy_promises import EnergyPromises
from geokv.scenario.promises import BreakEven, Change, ClosedForm, Overlap

Tier = Literal["device", "dram", "disk", "remote"]


class AtKm(Strict):
    """A limit that must hold in the cell at one distance."""

    limit: Annotated[float, Field(gt=0)]
    at_km: Annotated[float, Field(ge=0)]


class UpToKm(Strict):
    """A limit that must hold in every cell up to a distance."""

    limit: Annotated[float, Field(ge=0)]
    up_to_km: Annotated[float, Field(ge=0)]


class Expect(Strict):
    """What a scenario promises; each becomes a judged line of the verdict."""

    answers_equal: bool = False
    """Every answer equals the recomputed one, token by token, in every cell."""
    first_logits_within: Annotated[float, Field(ge=0)] | None = None
    """Largest difference of any first-token logit from the recomputed one."""
    controls_differ: bool = False
    """Every answer of a control arm, whose KV is wrong on purpose, has other first-token logits
    than the recomputed one, by more than ``first_logits_within``."""
    links_within_tolerance: bool = True
    """A link off its plan makes the run invalid."""
    goodput_ratio_at_least: Annotated[float, Field(gt=0, le=1)] | None = None
    """Measured goodput over the plan's payload rate, on every link of the path."""
    ratio_to_bound_at_most: AtKm | None = None
    """Remote-hit TTFT over its lower bound."""
    gain_change_percent_at_most: UpToKm | None = None
    """Reading A: relative change of the gain against 0 km."""
    remote_used: bool = False
    """Every remote-hit request really fetched from the other site."""
    closed_form_within: ClosedForm | None = None
    """The fetch time of a remote hit against ``measure/closed_form.py``."""
    overlap_within: Overlap | None = None
    """TTFT of a remote hit in layer groups against what overlapping leaves of it."""
    break_even_within: BreakEven | None = None
    """Where fetching begins to pay, against ``measure/break_even.py``."""
    changes: list[Change] = Field(default_factory=list)
    """Factors between two cells of the sweep, one judged line each."""
    tiers_used: list[Tier] = Field(default_factory=list)
    """Each of these served something in at least one cell."""
    energy: EnergyPromises | None = None
    """Of the energy proxy."""
    drill: DrillPromises | None = None
    """Of a drill, which takes no other promise."""
