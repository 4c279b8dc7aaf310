"""Sweeps: what changes from cell to cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.lab.topology import Topology
from geokv.scenario.control import Control

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

Value = bool | int | float | str


@dataclass(frozen=True)
class Point:
    """One value of an axis.

    Args:
        shown: as tables and records show it.
        changes: path → value.
    """

    shown: Value
    changes: dict[str, Value]
    out_of_range: bool = False


class SweepAxis(Strict):
    """One thing that changes from cell to cell; several axes span a grid.

    Either a ``path`` and its ``values``, or a ``name`` and ``variants`` that each set
    several paths at once.
    """

    path: str | None = None
    """A part of a link (``links.a-b.km``), of ``deployment``, ``cache`` or ``workload``, or of an
    event (``timeline.cut.for``)."""
    values: list[Value] = Field(default_factory=list)
    out_of_range: list[Value] = Field(default_factory=list)
    """Values that are shown for comparison, marked, and that no limit applies to."""
    name: str | None = None
    """What the column of the variants is called."""
    variants: dict[str, dict[str, Value]] = Field(default_factory=dict)
    """Variant → path → value."""

    @model_validator(mode="after")
    def _one_kind(self) -> SweepAxis:
        if (self.path is None) == (self.name is None):
            raise ValueError("must have either path and values, or name and variants")
        if self.path is not None:
            if self.variants:
                raise ValueError("variants: belong to a name, not to a path")
            if not self.values and not self.out_of_range:
                raise ValueError("values: must not be empty")
        elif self.values or self.out_of_range:
            raise ValueError("values: belong to a path, not to a name")
        elif not self.variants or not all(self.variants.values()):
            raise ValueError("variants: each must set something")
        return self

    @property
    def title(self) -> str:
        """What the axis is called in records and tables."""
        return self.path or self.name or ""

    @property
    def paths(self) -> list[str]:
        """Every path the axis changes."""
        if self.path is not None:
            return [self.path]
        return list(dict.fromkeys(path for sets in self.variants.values() for path in sets))

    def points(self) -> list[Point]:
        """Every value in order."""
        if self.path is None:
            return [Point(name, dict(sets)) for name, sets in self.variants.items()]
        inside = [Point(value, {self.path: value}) for value in self.values]
        return inside + [Point(value, {self.path: value}, True) for value in self.out_of_range]

    def place(self, point: Point) -> str:
        """Where in the axis a value is written: ``values.2``, ``variants.serial``."""
        if self.path is None:
            return f"variants.{point.shown}"
        values = self.out_of_range if point.out_of_range else self.values
        return f"{'out_of_range' if point.out_of_range else 'values'}.{values.index(point.shown)}"


@dataclass(frozen=True)
class Cell:
    """One point of a sweep, complete: nothing of it is decided later."""

    index: int
    settings: dict[str, Value]
    """Title of each axis → this cell's value."""
    out_of_range: bool
    scenario: Scenario
    """What runs in this cell: the scenario with the axes' values in their places."""
    km: float
    """Fibre between the two sites of the workload, along the route with least km."""
    label: str
    control: Control | None = None
    """Of the last cell of a drill: what was planted in it, so that it must fail."""

    @property
    def topology(self) -> Topology:
        """The network of this cell."""
        return self.scenario.topology


def label(settings: dict[str, Value]) -> str:
    """A cell's settings in a few words."""
    parts = []
    for title, value in settings.items():
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        if title.startswith("links."):
            _, link, field = title.split(".", 2)
            parts.append(f"{link} {shown} km" if field == "km" else f"{link} {field} {shown}")
        else:
            parts.append(f"{title.rsplit('.', 1)[-1]} {shown}")
    return ", ".join(parts) or "as written"
