"""Which pictures and small tables a sweep deserves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict

Quantity = Literal["goodput", "fetch", "ttft", "ttft_p99", "ttft_max", "ttft_over_recompute"]
"""Of remote hits: Gb/s and ms of the median fetch; of the TTFT in ms the median, the 99th
percentile (empty where too few requests carry one) and the slowest; and the share that the median
is of the recomputed one's. Of a drill, which compares the two by
``probe: recompute``, all that ask for what is cached are remote hits, whatever became of them."""

_NAME = r"^[a-z][a-z0-9_]{0,63}$"


class Lines(Strict):
    """A thing over one axis, a line for each value of another, in panels of the rest."""

    kind: Literal["lines"]
    name: Annotated[str, Field(pattern=_NAME)]
    """Of its file in ``plots/``."""
    title: str
    of: Quantity
    x: str
    """Title of the axis along the bottom."""
    lines: str | None = None
    panels: str | None = None
    """Axis of the panels side by side."""
    rows: str | None = None
    """Axis of the panels below each other."""


class Heat(Strict):
    """A thing over two axes as colours and numbers, in panels of the rest.

    Where ``x`` is the rate of a link, the rate from which on fetching pays is drawn in.
    """

    kind: Literal["heat"]
    name: Annotated[str, Field(pattern=_NAME)]
    title: str
    of: Quantity
    x: str
    y: str
    panels: str | None = None


class Tiers(Strict):
    """Which tier served which share of the prompt tokens of an arm, over one axis."""

    kind: Literal["tiers"]
    name: Annotated[str, Field(pattern=_NAME)]
    title: str
    x: str
    panels: str | None = None


Figure = Annotated[Lines | Heat | Tiers, Field(discriminator="kind")]


def axes_of(figure: Lines | Heat | Tiers) -> dict[str, str]:
    """Key of the figure → the axis it names."""
    keys = ("x", "y", "lines", "panels", "rows")
    named = {key: getattr(figure, key, None) for key in keys}
    return {key: axis for key, axis in named.items() if axis is not None}
