"""From a scenario's sweep to its cells."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import networkx

from geokv.config import validate
from geokv.errors import ConfigError
from geokv.lab.topology import Topology, load_topology
from geokv.scenario.control import Control
from geokv.scenario.paths import short_path, with_value
from geokv.scenario.seeds import AXIS
from geokv.scenario.sweep import Cell, Point, SweepAxis, Value, label

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario


def topology_mapping(topology: Topology) -> dict[str, object]:
    """The topology as plain YAML data that ``load_topology`` takes back."""
    data: dict[str, object] = topology.model_dump(mode="json", exclude_unset=True)
    return data


def build_cells(scenario: Scenario) -> list[Cell]:
    """All cells of the grid, the last axis changing fastest and the seed slowest; one cell without
    axes.

    Raises:
        ConfigError: a value its target does not take, or that contradicts another, as
            ``sweep.0.values.2: links.a-b.km: must be ≥ 0, got -3``.
    """
    cells = _swept(scenario)
    if scenario.control is not None:
        cells.append(_control(scenario, scenario.control, cells[0], len(cells)))
    return cells


def _swept(scenario: Scenario) -> list[Cell]:
    axes = scenario.sweep
    seeds = scenario.seed_list
    if not axes and scenario.control is None and len(seeds) == 1:
        return [_cell(0, {}, False, scenario)]
    # What is about the run as a whole has no meaning in one cell of it.
    base = {**scenario.resolved(), "sweep": [], "figures": [], "control": None, "seeds": None}
    cells = []
    # Another seed needs another lab and other weights, so it changes last.
    every = itertools.product(seeds, itertools.product(*(axis.points() for axis in axes)))
    for index, (seed, point) in enumerate(every):
        settings: dict[str, Value] = {AXIS: seed} if len(seeds) > 1 else {}
        settings |= {axis.title: one.shown for axis, one in zip(axes, point, strict=True)}
        try:
            resolved = _resolve(type(scenario), {**base, "seed": seed}, point)
        except ConfigError as error:
            first = error.message.split("\n")[0]
            raise ConfigError(f"{_place(axes, point, first)}: {first}", error.hint) from None
        cells.append(_cell(index, settings, any(one.out_of_range for one in point), resolved))
    return cells


def _control(scenario: Scenario, control: Control, first: Cell, index: int) -> Cell:
    """The first cell once more, with what its control takes away or sets."""
    data = first.scenario.resolved()
    left = [event for event in first.scenario.timeline if event.title not in control.without]
    data["timeline"] = [
        event.model_dump(mode="json", exclude_none=True, by_alias=True) for event in left
    ]
    try:
        for path, value in control.set.items():
            data = with_value(data, path, value)
        weak = _validated(type(scenario), data)
    except ConfigError as error:
        first_line = error.message.split("\n")[0]
        raise ConfigError(f"control: {first_line}", error.hint) from None
    return replace(_cell(index, first.settings, False, weak), label="control", control=control)


def path_links(topology: Topology, a: str, b: str) -> list[str]:
    """Ids of the links from ``a`` to ``b`` along the route with least km."""
    graph = topology.graph()
    nodes = networkx.dijkstra_path(graph, a, b, weight="km")
    return [str(graph.edges[pair]["link"]) for pair in itertools.pairwise(nodes)]


def path_km(topology: Topology, a: str, b: str) -> float:
    """Kilometres of fibre from ``a`` to ``b``."""
    return float(sum(topology.links[link].km for link in path_links(topology, a, b)))


def _cell(index: int, settings: dict[str, Any], out: bool, scenario: Scenario) -> Cell:
    workload = scenario.workload
    km = path_km(scenario.topology, workload.provider, workload.asker)
    return Cell(index, settings, out, scenario, km, label(settings))


def _resolve(model: type[Scenario], base: dict[str, Any], point: tuple[Point, ...]) -> Scenario:
    data = base
    for one in point:
        for path, value in one.changes.items():
            data = with_value(data, path, value)
    return _validated(model, data)


def _validated(model: type[Scenario], data: dict[str, Any]) -> Scenario:
    # Built by itself, so that a link's path is links.a-b.km, as the user names it.
    return validate(model, {**data, "topology": load_topology(data["topology"])})


def _place(axes: list[SweepAxis], point: tuple[Point, ...], message: str) -> str:
    places = []
    guilty = []
    for number, (axis, one) in enumerate(zip(axes, point, strict=True)):
        place = f"sweep.{number}.{axis.place(one)}"
        places.append(place)
        if any(message.startswith(short_path(path)) for path in one.changes):
            guilty.append(place)
    return ", ".join(guilty or places)
