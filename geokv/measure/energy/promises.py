"""Judge what a scenario promises about energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geokv.measure.cell import CellResult
from geokv.measure.energy.account import account
from geokv.measure.energy.constants import Constants
from geokv.measure.energy.grid import ends_of
from geokv.measure.energy.saving import Saving
from geokv.measure.energy.summary import COSTS, Arms, cell_day, cell_phases, cell_saving
from geokv.measure.energy.sun import WARM, Day
from geokv.measure.records import Request
from geokv.measure.result import Result, at_least, at_most, indices
from geokv.scenario.energy_promises import EnergyPromises

_ORDER = ("recompute", "remote-hit", "local-hit")


@dataclass(frozen=True)
class _Near:
    """The cells that a promise is about: those within range."""

    results: Sequence[CellResult]
    arms: Sequence[Arms]
    numbers: Constants

    def savings(self) -> list[tuple[CellResult, Saving]]:
        """Of each cell that compares a remote hit with recomputing."""
        return [
            (result, found)
            for result, one in zip(self.results, self.arms, strict=True)
            if (found := cell_saving(result, one, self.numbers)) is not None
        ]

    def days(self) -> list[tuple[CellResult, Day]]:
        return [
            (result, day)
            for result, one in zip(self.results, self.arms, strict=True)
            for what in COSTS
            if (day := cell_day(result, one, self.numbers, what)) is not None
        ]

    def judged(self, name: str, ok: bool | None, said: str) -> Result:
        return Result(f"energy.{name}", ok, said, indices(list(self.results)))


def judge_energy(
    promises: EnergyPromises | None,
    results: Sequence[CellResult],
    by_cell: Mapping[int, list[Request]],
    numbers: Constants,
) -> list[Result]:
    """One line per promise that is set; ``ok`` is None where a cell has nothing to judge by."""
    if promises is None:
        return []
    within = [result for result in results if not result.cell.out_of_range]
    arms = [cell_phases(result, by_cell.get(result.cell.index, [])) for result in within]
    near = _Near(within, arms, numbers)
    limits = (
        (promises.saved_change_percent_at_most, _change),
        (promises.break_even_utilisation_at_most, _break_even),
        (promises.following_saves_percent_at_least, _following),
    )
    found = [_ordered(near)] if promises.ordered else []
    return found + [judge(limit, near) for limit, judge in limits if limit is not None]


def _ordered(near: _Near) -> Result:
    name, cells = "ordered", len(near.results)
    whole = [one for one in near.arms if one.keys() >= set(_ORDER)]
    if not whole or len(whole) < cells:
        return near.judged(name, None, f"{len(whole)} of {cells} cells have all three arms")
    for result, one in zip(near.results, near.arms, strict=True):
        ends = ends_of(result.cell.scenario, near.numbers)
        joules = [account(one[arm], near.numbers, ends).energy_j for arm in _ORDER]
        if not joules[0] > joules[1] > joules[2]:
            said = ", ".join(
                f"{arm} {value:.1f} J" for arm, value in zip(_ORDER, joules, strict=True)
            )
            return near.judged(name, False, f"{result.cell.label}: {said}")
    return near.judged(name, True, f"recompute > remote hit > local hit in all {cells} cells")


def _change(limit: float, near: _Near) -> Result:
    name, seen = "saved_change_percent_at_most", near.savings()
    zero = [one.saved_j for result, one in seen if result.cell.km == 0]
    far = [(one.saved_j, result) for result, one in seen if result.cell.km > 0]
    if len(zero) != 1 or not far or len(seen) < len(near.results):
        return near.judged(name, None, "needs one valid cell at 0 km and others to compare with")
    if zero[0] <= 0:
        return near.judged(name, False, f"a remote hit saves nothing at 0 km ({zero[0]:.1f} J)")
    change, result = _largest([(100 * abs(saved / zero[0] - 1), result) for saved, result in far])
    ok = change <= limit
    said = f"J saved change by {change:.2f} % {at_most(ok)} {limit:g} % at {result.cell.km:g} km"
    return near.judged(name, ok, said)


def _break_even(limit: float, near: _Near) -> Result:
    name, seen, cells = "break_even_utilisation_at_most", near.savings(), len(near.results)
    if not seen or len(seen) < cells:
        return near.judged(name, None, f"{len(seen)} of {cells} cells compare both arms")
    never = [result for result, one in seen if one.utilisation is None]
    if never:
        said = f"a remote hit saves nothing at the margin: no use pays ({never[0].cell.label})"
        return near.judged(name, False, said)
    worst, result = _largest([(one.utilisation or 0.0, result) for result, one in seen])
    ok = worst <= limit
    said = (
        f"a lit pair pays from {100 * worst:.3g} % of its line on {at_most(ok)} {100 * limit:g} % "
        f"({result.cell.label})"
    )
    return near.judged(name, ok, said)


def _following(limit: float, near: _Near) -> Result:
    name = "following_saves_percent_at_least"
    seen = [
        (saved, result, day)
        for result, day in near.days()
        if (saved := day.saved(WARM)) is not None
    ]
    if not seen or len({result.cell.index for _, result, _ in seen}) < len(near.results):
        return near.judged(name, None, "not every cell has a day of both sites")
    worst, result, day = min(seen, key=lambda one: one[0])
    ok = 100 * worst >= limit
    ways = {way: sum(hour.best(WARM) == way for hour in day.hours) for way in WARM}
    chosen = ", ".join(f"{way} {count} h" for way, count in ways.items() if count)
    said = (
        f"following saves {100 * worst:.2f} % {at_least(ok)} {limit:g} % over the best of what is "
        f"always the same ({result.cell.label}: {chosen})"
    )
    return near.judged(name, ok, said)


def _largest(values: Sequence[tuple[float, CellResult]]) -> tuple[float, CellResult]:
    """The first of them, where several are."""
    return max(values, key=lambda one: one[0])
