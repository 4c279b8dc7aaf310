"""From the judged lines of a drill's cells to one word; the words and their order are those of
``geokv.measure.verdict``.

A cell whose links were off, or with which the machine did not keep up, is void, the control like
any other. Otherwise the control is judged the other way round: every line that it names must be
broken there. One that is not leaves the verdict ``unknown``, because then nobody knows whether the
checker sees anything at all. So does a fault of the control that was not seen to happen: what is
broken without it is not broken by what the control is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from geokv.measure.checker.finding import Finding
from geokv.measure.drill.cell import DrillCell
from geokv.measure.drill.compared import FETCHED
from geokv.measure.expect_sweep import judge_change
from geokv.measure.result import Result
from geokv.measure.verdict import Verdict

CONTROL_FAILS = "fails as it must"
CONTROL_HOLDS = "did not fail"
"""In place of pass and fail, what is said of a control cell: it was to fail."""


def decide_drill(cells: Sequence[DrillCell]) -> tuple[Verdict, list[Result]]:
    """The verdict, and its judged lines: each of the normal cells once, then the control's."""
    normal = [cell for cell in cells if not cell.is_control]
    judged = _judged(normal) + _changes(normal)
    for cell in cells:
        if cell.is_control:
            judged += control_lines(cell)
    void = [f"{c.cell.label}: {c.machine.problems[0]}" for c in cells if c.machine.problems]
    void += [f"{r.name}: {r.said}" for r in judged if r.name == "links" and r.ok is False]
    broken = [f"{r.name}: {r.said}" for r in judged if r.name != "links" and r.ok is False]
    open_ends = [f"{r.name}: {r.said}" for r in judged if r.ok is None]
    unrecorded = [cell.cell.label for cell in cells if not cell.recorded]
    if unrecorded:
        open_ends.insert(0, f"the run did not get to the end of {', '.join(unrecorded)}")
    reasons = [*void, *broken, *open_ends]
    if void:
        return Verdict("invalid", reasons), judged
    if broken:
        return Verdict("fail", reasons), judged
    return Verdict("unknown" if open_ends else "pass", reasons), judged


def word_of(cell: DrillCell) -> str:
    """Of one cell by itself: pass, fail, invalid or unknown; of the control, which is good when it
    is broken, one of ``CONTROL_FAILS`` and ``CONTROL_HOLDS`` in place of pass and fail."""
    if cell.void_because:
        return "invalid"
    if cell.is_control:
        if not cell.recorded or _not_fired(cell):
            return "unknown"
        return CONTROL_FAILS if all(line.ok for line in control_lines(cell)) else CONTROL_HOLDS
    lines = [line.ok for line in cell.lines]
    if False in lines:
        return "fail"
    return "pass" if cell.recorded and None not in lines else "unknown"


def control_lines(cell: DrillCell) -> list[Result]:
    """``control:LINE`` of every line that must be broken in the control cell."""
    control = cell.cell.control
    if control is None:
        return []
    by_name = {line.name: line for line in cell.lines}
    idle = _not_fired(cell)
    results = []
    for name in control.fails:
        if cell.machine.problems:
            why = f"the control shows nothing: {cell.machine.problems[0]}"
            results.append(Result(f"control:{name}", None, why))
            continue
        line = by_name.get(name)
        if idle and not cell.link_problems:
            why = f"the control shows nothing: {idle[0].name}: {idle[0].said}"
            results.append(Result(f"control:{name}", None, why))
            continue
        if line is not None and line.ok is False and not cell.link_problems:
            results.append(Result(f"control:{name}", True, f"fails as it must: {line.said}"))
            continue
        said = "it is not judged there" if line is None else line.said
        if cell.link_problems:
            said = f"links were off: {cell.link_problems[0]}"
        why = f"the control did not fail: the checker {name} may see nothing ({said})"
        results.append(Result(f"control:{name}", None, why))
    return results


def _not_fired(cell: DrillCell) -> list[Finding]:
    """Lines of faults that the control has (``without`` takes some away) and that were not seen."""
    return [
        line for line in cell.lines if line.name.startswith("fault-fired:") and line.ok is not True
    ]


def _changes(cells: Sequence[DrillCell]) -> list[Result]:
    """``expect:changes.N``: what is promised of cells against each other."""
    near = [cell for cell in cells if not cell.cell.out_of_range]
    promised = cells[0].cell.scenario.expect.changes if cells else []
    results = [
        judge_change(one, near, number, _fetched, "what is fetched")
        for number, one in enumerate(promised)
    ]
    return [replace(result, name=f"expect:{result.name}") for result in results]


def _fetched(cell: DrillCell, of: str) -> float | None:
    kind = cell.kinds.get(FETCHED)
    if kind is None or cell.void_because:
        return None
    values = {
        "ttft": kind.ttft.p50_ns,
        "ttft_p99": kind.ttft.p99_ns,
        "goodput": kind.goodput_bps,
    }
    return values[of]


def _judged(cells: Sequence[DrillCell]) -> list[Result]:
    """Each line once: the worst of what it is in any cell, and there the first."""
    order = {False: 0, None: 1, True: 2}
    names = dict.fromkeys(line.name for cell in cells for line in cell.lines)
    results = []
    for name in names:
        seen = [(line, cell) for cell in cells for line in cell.lines if line.name == name]
        line, cell = min(seen, key=lambda item: order[item[0].ok])
        count = sum(other.ok is line.ok for other, _ in seen)
        said = line.said
        if len(cells) > 1:
            said = f"{cell.cell.label}: {said} ({count} of {len(seen)} cells)"
        results.append(Result(name, line.ok, said))
    return results
