"""Sweeps and the cells they span."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import networkx
from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.errors import ConfigError
from geokv.lab.topology import Topology, load_topology
from geokv.scenario.paths import with_value

Value = int | float | str


class SweepAxis(Strict):
    """One thing that changes from cell to cell; several axes span a grid."""

    path: str
    """A part of a link, such as ``links.a-b.km``: it changes live, the lab stays."""
    values: list[Value] = Field(default_factory=list)
    out_of_range: list[Value] = Field(default_factory=list)
    """Values that are shown for comparison, marked, and that no limit applies to."""

    @model_validator(mode="after")
    def _has_values(self) -> SweepAxis:
        if not self.values and not self.out_of_range:
            raise ValueError("values: must not be empty")
        return self

    def marked(self) -> list[tuple[Value, bool]]:
        """Every value in order, with whether it is out of range."""
        return [(v, False) for v in self.values] + [(v, True) for v in self.out_of_range]


@dataclass(frozen=True)
class Cell:
    """One point of a sweep, complete: nothing of it is decided later."""

    index: int
    settings: dict[str, Value]
    """Swept path → this cell's value."""
    out_of_range: bool
    topology: Topology
    km: float
    """Fibre between the two sites of the workload, along the route with least km."""
    label: str


def topology_mapping(topology: Topology) -> dict[str, object]:
    """The topology as plain YAML data that ``load_topology`` takes back."""
    data: dict[str, object] = topology.model_dump(mode="json", exclude_unset=True)
    return data


def build_cells(topology: Topology, axes: list[SweepAxis], provider: str, asker: str) -> list[Cell]:
    """All cells of the grid, the last axis changing fastest; one cell without axes.

    Raises:
        ConfigError: a value its target does not take, as
            ``sweep.0.values.2: links.a-b.km: must be ≥ 0, got -3``.
    """
    base = topology_mapping(topology)
    cells = []
    for index, point in enumerate(itertools.product(*(axis.marked() for axis in axes))):
        settings = {axis.path: value for axis, (value, _) in zip(axes, point, strict=True)}
        data = base
        for path, value in settings.items():
            data = with_value({"topology": data}, path, value)["topology"]
        try:
            resolved = load_topology(data)
        except ConfigError as error:
            place = _place(axes, point, error.message)
            raise ConfigError(f"{place}: {error.message}", error.hint) from None
        cells.append(
            Cell(
                index=index,
                settings=settings,
                out_of_range=any(out for _, out in point),
                topology=resolved,
                km=path_km(resolved, provider, asker),
                label=_label(settings),
            )
        )
    return cells


def path_links(topology: Topology, a: str, b: str) -> list[str]:
    """Ids of the links from ``a`` to ``b`` along the route with least km."""
    graph = topology.graph()
    nodes = networkx.dijkstra_path(graph, a, b, weight="km")
    return [str(graph.edges[pair]["link"]) for pair in itertools.pairwise(nodes)]


def path_km(topology: Topology, a: str, b: str) -> float:
    """Kilometres of fibre from ``a`` to ``b``."""
    return float(sum(topology.links[link].km for link in path_links(topology, a, b)))


def _place(axes: list[SweepAxis], point: tuple[tuple[Value, bool], ...], message: str) -> str:
    places = []
    for number, (axis, (value, out)) in enumerate(zip(axes, point, strict=True)):
        values = axis.out_of_range if out else axis.values
        places.append(
            (
                axis.path,
                f"sweep.{number}.{'out_of_range' if out else 'values'}.{values.index(value)}",
            )
        )
    guilty = [place for path, place in places if message.startswith(path)]
    return ", ".join(guilty or [place for _, place in places])


def _label(settings: dict[str, Value]) -> str:
    parts = []
    for path, value in settings.items():
        _, link, field = path.split(".", 2)
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        parts.append(f"{link} {shown} km" if field == "km" else f"{link} {field} {shown}")
    return ", ".join(parts) or "as written"
