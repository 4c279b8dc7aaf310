"""Judge what a scenario promises about energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from geokv.measure.cell import CellResult
from geokv.measure.energy.account import account
from geokv.measure.energy.constants import Constants
from geokv.measure.energy.saving import Saving
from geokv.measure.energy.summary import COSTS, Arms, cell_day, cell_phases, cell_saving
from geokv.measure.energy.sun import WARM, Day
from geokv.measure.records import Request
from geokv.measure.result import Result, at_least, at_most, indices
from geokv.scenario.energy_promises import EnergyPromises

_ORDER = ("recompute", "remote-hit", "local-hit")


def judge_energy(
    promises: EnergyPromises | None,
    results: Sequence[CellResult],
    by_cell: Mapping[int, list[Request]],
    numbers: Constants,
) -> list[Result]:
    """One line per promise that is set; ``ok`` is None where a cell has nothing to judge by."""
    if promises is None:
        return []
    near = [result for result in results if not result.cell.out_of_range]
    arms = [cell_phases(result, by_cell.get(result.cell.index, [])) for result in near]
    found = []
    if promises.ordered:
        found.append(_ordered(near, arms, numbers))
    if promises.saved_change_percent_at_most is not None:
        found.append(_change(promises.saved_change_percent_at_most, near, arms, numbers))
    if promises.break_even_utilisation_at_most is not None:
        found.append(_break_even(promises.break_even_utilisation_at_most, near, arms, numbers))
    if promises.following_saves_percent_at_least is not None:
        found.append(_following(promises.following_saves_percent_at_least, near, arms, numbers))
    return found


def _ordered(near: Sequence[CellResult], arms: Sequence[Arms], numbers: Constants) -> Result:
    name = "energy.ordered"
    used = indices(list(near))
    whole = [one for one in arms if one.keys() >= set(_ORDER)]
    if not whole or len(whole) < len(near):
        return Result(name, None, f"{len(whole)} of {len(near)} cells have all three arms", used)
    for result, one in zip(near, arms, strict=True):
        joules = [account(one[arm], numbers).energy_j for arm in _ORDER]
        if not joules[0] > joules[1] > joules[2]:
            said = ", ".join(
                f"{arm} {value:.1f} J" for arm, value in zip(_ORDER, joules, strict=True)
            )
            return Result(name, False, f"{result.cell.label}: {said}", used)
    said = f"recompute > remote hit > local hit in all {len(near)} cells"
    return Result(name, True, said, used)


def _savings(
    near: Sequence[CellResult], arms: Sequence[Arms], numbers: Constants
) -> list[tuple[CellResult, Saving]]:
    return [
        (result, found)
        for result, one in zip(near, arms, strict=True)
        if (found := cell_saving(result, one, numbers)) is not None
    ]


def _change(
    limit: float, near: Sequence[CellResult], arms: Sequence[Arms], numbers: Constants
) -> Result:
    name = "energy.saved_change_percent_at_most"
    used = indices(list(near))
    seen = _savings(near, arms, numbers)
    zero = [one.saved_j for result, one in seen if result.cell.km == 0]
    far = [(one.saved_j, result) for result, one in seen if result.cell.km > 0]
    if len(zero) != 1 or not far or len(seen) < len(near):
        return Result(name, None, "needs one valid cell at 0 km and others to compare with", used)
    if zero[0] <= 0:
        return Result(name, False, f"a remote hit saves nothing at 0 km ({zero[0]:.1f} J)", used)
    change, result = max(
        ((100 * abs(saved / zero[0] - 1), result) for saved, result in far), key=lambda one: one[0]
    )
    ok = change <= limit
    said = f"J saved change by {change:.2f} % {at_most(ok)} {limit:g} % at {result.cell.km:g} km"
    return Result(name, ok, said, used)


def _break_even(
    limit: float, near: Sequence[CellResult], arms: Sequence[Arms], numbers: Constants
) -> Result:
    name = "energy.break_even_utilisation_at_most"
    used = indices(list(near))
    seen = _savings(near, arms, numbers)
    if not seen or len(seen) < len(near):
        return Result(name, None, f"{len(seen)} of {len(near)} cells compare both arms", used)
    never = [result for result, one in seen if one.utilisation is None]
    if never:
        said = f"a remote hit saves nothing at the margin: no use pays ({never[0].cell.label})"
        return Result(name, False, said, used)
    worst, result = max(
        ((one.utilisation or 0.0, result) for result, one in seen), key=lambda one: one[0]
    )
    ok = worst <= limit
    said = (
        f"a lit pair pays from {100 * worst:.3g} % of its line on {at_most(ok)} {100 * limit:g} % "
        f"({result.cell.label})"
    )
    return Result(name, ok, said, used)


def _following(
    limit: float, near: Sequence[CellResult], arms: Sequence[Arms], numbers: Constants
) -> Result:
    name = "energy.following_saves_percent_at_least"
    used = indices(list(near))
    days: list[tuple[CellResult, Day]] = [
        (result, day)
        for result, one in zip(near, arms, strict=True)
        for what in COSTS
        if (day := cell_day(result, one, numbers, what)) is not None
    ]
    seen = [(saved, result, day) for result, day in days if (saved := day.saved(WARM)) is not None]
    if not seen or len({result.cell.index for _, result, _ in seen}) < len(near):
        return Result(name, None, "not every cell has a day of both sites", used)
    worst, result, day = min(seen, key=lambda one: one[0])
    ok = 100 * worst >= limit
    ways = {way: sum(hour.best(WARM) == way for hour in day.hours) for way in WARM}
    chosen = ", ".join(f"{way} {count} h" for way, count in ways.items() if count)
    said = (
        f"following saves {100 * worst:.2f} % {at_least(ok)} {limit:g} % over the best of what is "
        f"always the same ({result.cell.label}: {chosen})"
    )
    return Result(name, ok, said, used)
