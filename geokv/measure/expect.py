"""Judge what a scenario promised, one line per promise.

``ok`` is None when the run holds nothing to judge by: that is neither kept nor broken.
"""

from __future__ import annotations

import math
from collections import Counter

from geokv.measure.cell import CellResult
from geokv.measure.expect_sweep import break_even, change, closed_form, overlap, tiers_used
from geokv.measure.result import Result, at_least, at_most, indices
from geokv.scenario.expect import AtKm, Expect, UpToKm

_CONTROL_FLOOR = 1e-3
"""What logits of a wrong context must differ by, where a scenario sets no limit for right ones."""


def judge(expect: Expect, cells: list[CellResult]) -> list[Result]:
    """One result per promise that is set, in the order of ``Expect``."""
    near = [cell for cell in cells if not cell.cell.out_of_range]
    results = []
    if expect.answers_equal:
        results.append(_answers_equal(cells))
    if expect.first_logits_within is not None:
        results.append(_first_logits(expect.first_logits_within, cells))
    if expect.controls_differ:
        results.append(_controls_differ(expect.first_logits_within, near))
    if expect.links_within_tolerance:
        results.append(_links(near))
    if expect.goodput_ratio_at_least is not None:
        results.append(_goodput(expect.goodput_ratio_at_least, near))
    if expect.ratio_to_bound_at_most is not None:
        results.append(_ratio(expect.ratio_to_bound_at_most, near))
    if expect.gain_change_percent_at_most is not None:
        results.append(_gain_change(expect.gain_change_percent_at_most, near))
    if expect.remote_used:
        results.append(_remote_used(near))
    if expect.closed_form_within is not None:
        results.append(closed_form(expect.closed_form_within, near))
    if expect.overlap_within is not None:
        results.append(overlap(expect.overlap_within, near))
    if expect.break_even_within is not None:
        results.append(break_even(expect.break_even_within, near))
    results += [change(one, near, number) for number, one in enumerate(expect.changes)]
    if expect.tiers_used:
        results.append(tiers_used(expect.tiers_used, near))
    return results


def _answers_equal(cells: list[CellResult]) -> Result:
    name = "answers_equal"
    compared = sum(cell.answers.compared for cell in cells)
    wrong = [said for cell in cells for said in cell.answers.wrong]
    lonely = sum(len(cell.answers.without_reference) for cell in cells)
    if wrong:
        return Result(name, False, f"{len(wrong)} of {compared} answers are wrong: {wrong[0]}")
    if not compared or lonely:
        return Result(name, None, f"{lonely} answers have no recomputed one to compare with")
    return Result(name, True, f"all {compared} answers equal the recomputed ones")


def _first_logits(limit: float, cells: list[CellResult]) -> Result:
    name = "first_logits_within"
    diffs = [cell.answers.logits_diff for cell in cells if cell.answers.logits_diff is not None]
    if not diffs:
        return Result(name, None, "no first-token logits were recorded")
    worst = max(diffs)
    if math.isinf(worst):
        return Result(name, False, "first-token logits have different lengths")
    missing = [one for cell in cells for one in cell.answers.without_logits]
    if missing and worst <= limit:
        said = f"{len(missing)} answers have no first-token logits to compare: {missing[0]}"
        return Result(name, None, said)
    return Result(
        name, worst <= limit, f"largest difference {worst:.2g} {at_most(worst <= limit)} {limit:g}"
    )


def _controls_differ(limit: float | None, near: list[CellResult]) -> Result:
    name = "controls_differ"
    floor = _CONTROL_FLOOR if limit is None else limit
    controls = [control for cell in near for control in cell.controls]
    diffs = [diff for control in controls for diff in control.diffs]
    lonely = sum(len(control.without_reference) for control in controls)
    unplanted = [
        f"{control.arm} at {cell.cell.label}"
        for cell in near
        for control in cell.controls
        if cell.planted.get(control.arm, "ok") == "ok"
    ]
    if not diffs or lonely:
        return Result(name, None, f"{lonely} control answers have nothing to be compared with")
    if unplanted:
        return Result(name, None, f"no wrong block was seen in place: {unplanted[0]}")
    same = sum(1 for diff in diffs if not diff > floor)
    if same:
        said = f"{same} of {len(diffs)} answers over wrong KV have the recomputed logits"
        return Result(name, False, said)
    words = ", ".join(
        f"{sum(c.words_differ for c in controls if c.arm == arm)} of "
        f"{sum(c.compared for c in controls if c.arm == arm)} in {arm}"
        for arm in dict.fromkeys(control.arm for control in controls)
    )
    said = (
        f"all {len(diffs)} answers over wrong KV have other logits (by {min(diffs):.2g} or more); "
        f"other words: {words}"
    )
    return Result(name, True, said)


def _links(near: list[CellResult]) -> Result:
    name = "links_within_tolerance"
    used = indices(near)
    bad = [cell for cell in near if cell.recorded and cell.link_problems]
    if bad:
        said = f"{len(bad)} of {len(near)} cells: {bad[0].cell.label}: {bad[0].link_problems[0]}"
        return Result(name, False, said, used)
    checked = sum(1 for cell in near if cell.recorded)
    if not checked or checked < len(near):
        return Result(name, None, f"links were checked in {checked} of {len(near)} cells", used)
    said = f"every link kept to its plan before and after each of {checked} cells"
    return Result(name, True, said, used)


def _goodput(limit: float, near: list[CellResult]) -> Result:
    name = "goodput_ratio_at_least"
    seen = [(cell.goodput_ratio, cell) for cell in near if cell.goodput_ratio is not None]
    if not seen:
        return Result(name, None, "goodput was not measured", indices(near))
    worst, cell = min(seen, key=lambda item: item[0])
    ok = worst >= limit
    said = f"lowest ratio {worst:.3f} {at_least(ok)} {limit:g} at {cell.cell.km:g} km"
    return Result(name, ok, said, indices(near))


def _ratio(limit: AtKm, near: list[CellResult]) -> Result:
    name = "ratio_to_bound_at_most"
    here = [cell for cell in near if cell.cell.km == limit.at_km]
    seen = [cell.ratio_to_bound for cell in here if cell.ratio_to_bound is not None]
    if not here:
        return Result(name, None, f"not tested: no cell in range is at {limit.at_km:g} km")
    if len(seen) < len(here):
        said = f"no valid remote hit at {limit.at_km:g} km to compare with the bound"
        return Result(name, None, said, indices(here))
    ok = max(seen) <= limit.limit
    said = f"ratio {max(seen):.3f} {at_most(ok)} {limit.limit:.2f} at {limit.at_km:g} km"
    return Result(name, ok, said, indices(here))


def _gain_change(limit: UpToKm, near: list[CellResult]) -> Result:
    name = "gain_change_percent_at_most"
    zero = [cell for cell in near if cell.cell.km == 0]
    here = [cell for cell in near if 0 < cell.cell.km <= limit.up_to_km]
    used = indices([*zero, *here])
    if not zero or not here:
        said = f"not tested: needs cells at 0 km and up to {limit.up_to_km:g} km"
        return Result(name, None, said, used)
    lost = [cell.gain for cell in zero if cell.gain is not None and cell.gain <= 0]
    if lost:
        said = f"a remote hit gains nothing even at 0 km (gain {min(lost):.3f})"
        return Result(name, False, said, used)
    seen = [(c.gain_change_percent, c) for c in here if c.gain_change_percent is not None]
    if len(seen) < len(here):
        return Result(name, None, "a cell has no gain to compare with that at 0 km", used)
    worst, cell = max(seen, key=lambda item: item[0])
    ok = worst <= limit.limit
    said = f"gain changes by {worst:.2f} % {at_most(ok)} {limit.limit:g} % at {cell.cell.km:g} km"
    return Result(name, ok, said, used)


def _remote_used(near: list[CellResult]) -> Result:
    name = "remote_used"
    arms = [cell.arms["remote-hit"] for cell in near if "remote-hit" in cell.arms]
    served = sum(arm.n for arm in arms)
    fetched = sum(arm.fetched for arm in arms)
    if not served:
        return Result(name, None, "no remote-hit request was answered")
    if fetched == served:
        return Result(name, True, f"all {served} remote-hit requests fetched from the other site")
    causes: Counter[str] = Counter()
    for arm in arms:
        causes.update(arm.misses)
    why = ", ".join(f"{cause} {count}" for cause, count in sorted(causes.items()))
    lack = served - fetched
    said = f"{lack} of {served} remote-hit requests fetched nothing"
    if fetched == 0:
        said = f"sharing had no effect: {said}"
    return Result(name, False, f"{said} ({why})" if why else said)
