"""What must hold of every run, whatever its scenario promises."""

from __future__ import annotations

from geokv.measure.cell import CellResult
from geokv.measure.result import Result
from geokv.measure.spans import TOLERANCE


def examine(cells: list[CellResult]) -> list[Result]:
    """Complete, answered, served as named, additive, consistent: one result each."""
    return [_complete(cells), _answered(cells), _named(cells), _additive(cells), _integrity(cells)]


def _complete(cells: list[CellResult]) -> Result:
    recorded = sum(1 for cell in cells if cell.recorded)
    arms = [arm for cell in cells for arm in cell.arms.values()]
    asked = sum(arm.asked for arm in arms)
    there = asked - sum(arm.missing for arm in arms)
    said = f"{recorded} of {len(cells)} cells and {there} of {asked} requests are recorded"
    whole = recorded == len(cells) and there == asked and asked > 0
    return Result("complete", True if whole else None, said)


def _answered(cells: list[CellResult]) -> Result:
    arms = [arm for cell in cells for arm in cell.arms.values()]
    failed = [said for arm in arms for said in arm.failed]
    answered = sum(arm.n for arm in arms)
    if failed:
        said = f"{len(failed)} of {answered + len(failed)} requests failed: {failed[0]}"
        return Result("answered", False, said)
    if not answered:
        return Result("answered", None, "no request was answered")
    return Result("answered", True, f"all {answered} requests were answered")


def _named(cells: list[CellResult]) -> Result:
    arms = [arm for cell in cells for arm in cell.arms.values()]
    odd = [said for arm in arms for said in arm.misnamed]
    if odd:
        said = f"{len(odd)} requests were not served as their arm says: {odd[0]}"
        return Result("arms_as_named", False, said)
    said = "nothing cached was used to recompute, nothing fetched for a local hit"
    return Result("arms_as_named", True, said)


def _additive(cells: list[CellResult]) -> Result:
    arms = [arm for cell in cells for arm in cell.arms.values()]
    odd = [said for arm in arms for said in arm.spans_off]
    if odd:
        said = f"{len(odd)} requests have spans that do not add up: {odd[0]}"
        return Result("spans_add_up", False, said)
    if not any(arm.n for arm in arms):
        return Result("spans_add_up", None, "no request was timed")
    worst = max(arm.worst_span_error for arm in arms)
    said = f"spans add up to the client's TTFT within {TOLERANCE:.0%} (worst {worst:.2%})"
    return Result("spans_add_up", True, said)


def _integrity(cells: list[CellResult]) -> Result:
    odd = [said for cell in cells for said in cell.integrity_problems]
    if odd:
        return Result("integrity", False, f"{len(odd)} contradictions: {odd[0]}")
    if not any(cell.recorded for cell in cells):
        return Result("integrity", None, "no site was examined")
    return Result("integrity", True, "pools, tables and directories agree with themselves")
