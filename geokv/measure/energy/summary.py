"""``energy`` of ``summary.json``: constants, grade, accounts, savings, a tornado and a day.

Names follow CodeCarbon's and the SCI specification's where they mean the same, with the unit
behind them: ``energy_consumed_kwh``, ``emissions_g``, ``carbon_intensity_g_per_kwh``, ``pue``.
Numbers are rounded here and only here: joules to 3 decimals, what a kWh costs to 7 digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from geokv.measure.cell import CellResult
from geokv.measure.energy.account import Account, account
from geokv.measure.energy.constants import Constants, constants
from geokv.measure.energy.grid import Ends, ends_of
from geokv.measure.energy.metered import metered
from geokv.measure.energy.request import Phases, mean_phases
from geokv.measure.energy.saving import Saving, saving
from geokv.measure.energy.sun import COLD, WARM, Day, follow
from geokv.measure.energy.tornado import shown, tornado
from geokv.measure.records import Manifest, Request
from geokv.measure.rounded import digits, rounded
from geokv.scenario import Cell, Scenario, path_links

What = Literal["carbon_intensity_g_per_kwh", "price_per_kwh"]
COSTS: tuple[What, ...] = ("carbon_intensity_g_per_kwh", "price_per_kwh")
_UNITS = {"carbon_intensity_g_per_kwh": "g", "price_per_kwh": "money"}

Arms = Mapping[str, Phases]


def cell_phases(result: CellResult, requests: Sequence[Request]) -> dict[str, Phases]:
    """The mean measured request of each arm of a cell; empty where its links were off (INV-7)."""
    if not result.valid:
        return {}
    scenario, topology = result.cell.scenario, result.cell.topology
    links = len(path_links(topology, scenario.workload.provider, scenario.workload.asker))
    found: dict[str, Phases] = {}
    for arm in scenario.arms:
        rows = [row for row in requests if row.arm == arm and not row.warmup]
        mean = mean_phases(rows, links, scenario.deployment.byte_scale)
        if mean is not None:
            found[arm] = mean
    return found


def cell_saving(result: CellResult, arms: Arms, numbers: Constants) -> Saving | None:
    """Of a remote hit over computing; None in a cell that has not both."""
    if result.path is None or not {"recompute", "remote-hit"} <= arms.keys():
        return None
    rate_bps = result.path.rate_bps * result.cell.scenario.deployment.byte_scale
    ends = ends_of(result.cell.scenario, numbers)
    return saving(arms["recompute"], arms["remote-hit"], numbers, rate_bps, ends)


def cell_day(result: CellResult, arms: Arms, numbers: Constants, what: What) -> Day | None:
    """A day of a cell by carbon or by price; None where sites say nothing of it."""
    scenario = result.cell.scenario
    sites = scenario.energy.sites or {}
    here, there = (
        sites.get(site) for site in (scenario.workload.asker, scenario.workload.provider)
    )
    if here is None or there is None:
        return None
    costs_here, costs_there = here.by_hour(what), there.by_hour(what)
    if not costs_here or not costs_there or len(arms.keys() & {"recompute", "local-hit"}) < 2:
        return None
    if "remote-hit" not in arms:
        return None
    ends = ends_of(scenario, numbers)
    return follow(arms, numbers, (costs_here, ends.here.pue), (costs_there, ends.there.pue))


def energy_summary(
    run_dir: Path,
    scenario: Scenario,
    manifest: Manifest,
    results: Sequence[CellResult],
    by_cell: Mapping[int, list[Request]],
    by_point: Mapping[int, list[Request]],
) -> dict[str, Any]:
    """Everything a run says about energy.

    Args:
        results: a point of the sweep each; ``by_point`` has its requests, of all its seeds.

    Raises:
        RunError: watts in the manifest that are none, or a meter's records that are broken.
    """
    numbers = constants(scenario.energy, manifest.profile)
    arms = [cell_phases(result, by_point.get(result.cell.index, [])) for result in results]
    valid = {
        cell: by_point.get(cell, []) for cell in (one.cell.index for one in results if one.valid)
    }
    return {
        "kind": "proxy",
        **metered(run_dir, scenario, manifest, by_cell, valid, numbers),
        "constants": numbers.shown(),
        "cells": [
            _cell(result, phases, numbers) for result, phases in zip(results, arms, strict=True)
        ],
        "tornado": _tornado(results, arms, numbers),
        "follow_the_sun": _follow(scenario, results, arms, numbers),
    }


def _cell(result: CellResult, arms: Arms, numbers: Constants) -> dict[str, Any]:
    one = cell_saving(result, arms, numbers)
    ends = ends_of(result.cell.scenario, numbers)
    return {
        "cell": result.cell.index,
        "km": rounded(result.cell.km, 3),
        "sites": _sites(result.cell.scenario, ends),
        "arms": {
            name.replace("-", "_"): _arm(account(phases, numbers, ends), phases)
            for name, phases in arms.items()
        },
        "remote_hit_saves": _saving(one) if one else None,
    }


def _sites(scenario: Scenario, ends: Ends) -> dict[str, dict[str, float | None]]:
    """The power that joules and grams of a cell are counted with."""
    workload = scenario.workload
    return {
        site: {
            "pue": rounded(grid.pue, 3),
            "carbon_intensity_g_per_kwh": rounded(grid.carbon_intensity_g_per_kwh, 2),
        }
        for site, grid in zip((workload.asker, workload.provider), ends, strict=True)
    }


def _arm(one: Account, phases: Phases) -> dict[str, Any]:
    return {
        "duration_s": rounded(phases.total_s, 6),
        "energy_j": rounded(one.energy_j, 3),
        "energy_consumed_kwh": digits(one.energy_consumed_kwh),
        "emissions_g": digits(one.emissions_g),
        "j_per_output_token": _per(one.energy_j, phases.output_tokens),
        "j_per_prompt_token": _per(one.energy_j, phases.prompt_tokens),
        "parts_j": _parts(one),
    }


def _parts(one: Account) -> dict[str, float | None]:
    parts = {
        "gpu_idle": one.gpu_idle_j,
        "gpu_prefill": one.gpu_prefill_j,
        "gpu_decode": one.gpu_decode_j,
        "host": one.host_j,
        "optics": one.optics_j,
        "switch": one.switch_j,
        "transfer": one.transfer_j,
        "overhead": one.energy_j - one.machines_j,
    }
    return {name: rounded(value, 3) for name, value in parts.items()}


def _saving(one: Saving) -> dict[str, Any]:
    return {
        "saved_j": rounded(one.saved_j, 3),
        "saved_marginal_j": rounded(one.saved_marginal_j, 3),
        "moved_gb": rounded(one.moved_gb, 6),
        "saved_j_per_gb": rounded(one.saved_j_per_gb, 3),
        "saved_marginal_j_per_gb": rounded(one.saved_marginal_j_per_gb, 3),
        "break_even": {
            "lit_w": rounded(one.lit_w, 3),
            "hits_per_s": digits(one.hits_per_s),
            "hits_per_hour": digits(None if one.hits_per_s is None else 3600 * one.hits_per_s),
            "utilisation": digits(one.utilisation),
            "saved_at_full_use_w": rounded(one.saved_at_full_use_w, 1),
        },
    }


def _tornado(
    results: Sequence[CellResult], arms: Sequence[Arms], numbers: Constants
) -> dict[str, Any] | None:
    """At the farthest cell in range: J saved, or J per request where only one arm was run."""
    order = sorted(
        range(len(results)), key=lambda n: (results[n].cell.out_of_range, -results[n].cell.km, n)
    )
    for number in order:
        result, phases = results[number], arms[number]
        if cell_saving(result, phases, numbers) is not None:

            def saved_j(these: Constants, n: int = number) -> float:
                found = cell_saving(results[n], arms[n], these)
                return found.saved_j if found else 0.0

            of = "J saved by a remote hit"
            bars = tornado(saved_j, numbers)
            return shown(of, result.cell.index, result.cell.label, saved_j(numbers), bars)
    for number in order:
        for arm, phases_of_arm in arms[number].items():
            cell = results[number].cell

            def per_request_j(
                these: Constants, one: Phases = phases_of_arm, of: Cell = cell
            ) -> float:
                return account(one, these, ends_of(of.scenario, these)).energy_j

            bars = tornado(per_request_j, numbers)
            of = f"J per {arm} request"
            return shown(of, cell.index, cell.label, per_request_j(numbers), bars)
    return None


def _follow(
    scenario: Scenario,
    results: Sequence[CellResult],
    arms: Sequence[Arms],
    numbers: Constants,
) -> list[dict[str, Any]]:
    """One entry per thing that a kWh costs and both sites name."""
    found = []
    for what in COSTS:
        days = [
            (result, day)
            for result, phases in zip(results, arms, strict=True)
            if (day := cell_day(result, phases, numbers, what)) is not None
        ]
        if days:
            found.append(_costs(scenario, what, days))
    return found


def _costs(
    scenario: Scenario, what: What, days: Sequence[tuple[CellResult, Day]]
) -> dict[str, Any]:
    workload, sites = scenario.workload, scenario.energy.sites or {}
    return {
        "by": what,
        "unit": _UNITS[what],
        "here": workload.asker,
        "there": workload.provider,
        "sites": {
            site: {"by_hour": sites[site].by_hour(what), "source": sites[site].source}
            for site in dict.fromkeys((workload.asker, workload.provider))
        },
        "cells": [_day(result, day) for result, day in days],
    }


def _day(result: CellResult, day: Day) -> dict[str, Any]:
    return {
        "cell": result.cell.index,
        "km": rounded(result.cell.km, 3),
        "hours": [
            {
                "hour": hour.hour,
                "costs": {way: digits(cost) for way, cost in hour.costs.items()},
                "best": hour.best(WARM),
                "best_cold": hour.best(COLD),
            }
            for hour in day.hours
        ],
        "mean": {way: digits(day.mean(way)) for way in day.hours[0].costs},
        "following": digits(day.following(WARM)),
        "following_cold": digits(day.following(COLD)),
        "saved": rounded(day.saved(WARM), 4),
        "saved_cold": rounded(day.saved(COLD), 4),
    }


def _per(joules: float, tokens: float) -> float | None:
    return rounded(joules / tokens, 4) if tokens else None
