"""Which pictures and small tables a sweep deserves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict

Quantity = Literal["goodput", "fetch", "ttft", "ttft_over_recompute"]
"""Of the median remote hit: Gb/s, ms, ms, and its share of the recomputed one's TTFT."""

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
