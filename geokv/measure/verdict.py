"""From judged lines to one word and an exit code.

    invalid (3)  a link that a judgement stands on was off its plan, or in real time the machine
                 did not keep up (computing took longer than it was charged for, timers came late,
                 the run waited for a processor): the run is void
    fail    (1)  something that must hold does not
    unknown (4)  nothing is broken, but something was not tested or not recorded
    pass    (0)  everything holds

The first that applies, in this order, is the verdict; the reasons name all that apply,
so a wrong token is never hidden behind a bad link.
"""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.cell import CellResult
from geokv.measure.result import Result

EXIT_CODES = {"pass": 0, "fail": 1, "invalid": 3, "unknown": 4}


@dataclass(frozen=True)
class Verdict:
    """``pass``, ``fail``, ``invalid`` or ``unknown``, and every reason that applies."""

    word: str
    reasons: list[str]

    @property
    def exit_code(self) -> int:
        """0, 1, 3 or 4, in the order of the words above."""
        return EXIT_CODES[self.word]


def decide(results: list[Result], cells: list[CellResult]) -> Verdict:
    """The verdict over all judged lines of a run."""
    used = {index for result in results for index in result.link_cells}
    void = [
        f"{cell.cell.label}: {cell.void_because[0]}"
        for cell in cells
        if (cell.cell.index in used or cell.late_problems) and cell.recorded and not cell.valid
    ]
    # A missed goodput target is the link's fault, not the cache's: it voids as well.
    about_links = {"links_within_tolerance", "goodput_ratio_at_least"}
    if not void:
        void = [f"{r.name}: {r.said}" for r in results if r.name in about_links and r.ok is False]
    broken = [f"{r.name}: {r.said}" for r in results if r.ok is False and r.name not in about_links]
    open_ends = [f"{r.name}: {r.said}" for r in results if r.ok is None]
    remote = [cell.arms["remote-hit"] for cell in cells if "remote-hit" in cell.arms]
    if remote and not any(arm.fetched for arm in remote):
        open_ends.append("sharing had no effect: no remote-hit request fetched anything")
    reasons = [*void, *broken, *open_ends]
    if void:
        return Verdict("invalid", reasons)
    if broken:
        return Verdict("fail", reasons)
    if open_ends:
        return Verdict("unknown", reasons)
    return Verdict("pass", reasons)
