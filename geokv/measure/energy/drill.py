"""``energy`` of a drill's ``summary.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.measure.drill.cell import DrillCell
from geokv.measure.energy.constants import Constants, constants
from geokv.measure.energy.fleet import Fleet, fleet
from geokv.measure.energy.metered import not_metered
from geokv.measure.energy.tornado import shown as shown_bars
from geokv.measure.energy.tornado import tornado
from geokv.measure.records import Manifest
from geokv.measure.rounded import digits
from geokv.scenario import Scenario, path_links
from geokv.scenario.sweep import Cell
from geokv.scenario.workload import Stream


def drill_energy(
    scenario: Scenario, manifest: Manifest, cells: Sequence[DrillCell]
) -> dict[str, Any]:
    """Constants, grade, what every cell but the control drew, and a tornado of one of them.

    Raises:
        RunError: watts in the manifest that are none.
    """
    numbers = constants(scenario.energy, manifest.profile)
    found = [
        (cell, one)
        for cell in cells
        if not cell.is_control and not cell.void_because and (one := _fleet(cell)) is not None
    ]
    return {
        "kind": "proxy",
        **not_metered(manifest, "drills are not metered"),
        "constants": numbers.shown(),
        "fleets": [_shown(cell, one, numbers) for cell, one in found],
        "tornado": _tornado(*found[-1], numbers) if found else None,
        "follow_the_sun": [],
    }


def _fleet(cell: DrillCell) -> Fleet | None:
    topology = cell.cell.topology
    return fleet(
        [one for one, _ in cell.fates.by_request],
        len(topology.sites),
        len(topology.links),
        _hops(cell.cell),
        cell.cell.scenario.deployment.byte_scale,
    )


def _hops(cell: Cell) -> dict[str, int]:
    stream = cell.scenario.workload
    providers = stream.providers if isinstance(stream, Stream) else []
    return {
        site: min(
            (len(path_links(cell.topology, site, one)) for one in providers if one != site),
            default=1,
        )
        for site in cell.topology.sites
    }


def _shown(cell: DrillCell, one: Fleet, numbers: Constants) -> dict[str, Any]:
    energy_j = one.energy_j(numbers)
    parts = one.parts_j(numbers)
    parts["overhead"] = energy_j - sum(parts.values())
    return {
        "cell": cell.cell.index,
        "duration_s": round(one.duration_s, 6),
        "prefill_s": round(one.prefill_s, 6),
        "decode_s": round(one.decode_s, 6),
        "idle_s": round(one.idle_s, 6),
        "answered": one.answered,
        "energy_j": round(energy_j, 3),
        "energy_consumed_kwh": digits(one.energy_consumed_kwh(numbers)),
        "emissions_g": digits(one.emissions_g(numbers)),
        "j_per_answer": round(energy_j / one.answered, 3),
        "j_per_output_token": round(energy_j / one.output_tokens, 4) if one.output_tokens else None,
        "parts_j": {name: round(value, 3) for name, value in parts.items()},
    }


def _tornado(cell: DrillCell, one: Fleet, numbers: Constants) -> dict[str, Any]:
    def per_answer_j(these: Constants) -> float:
        return one.energy_j(these) / one.answered

    bars = tornado(per_answer_j, numbers)
    return shown_bars("J per answer", cell.cell.index, cell.cell.label, per_answer_j(numbers), bars)
