"""The numbers of a run: its table, and what a sweep shows as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report.answers import answers
from geokv.report.drill_sweep import is_sweep, sweep_rows, sweep_titles
from geokv.report.drill_words import cell_row, cell_titles, fault_rows, fault_titles
from geokv.report.grid import wide_columns, wide_table
from geokv.report.page.section import Section
from geokv.report.pivot import pivots
from geokv.report.sheet.blocks import Block, Fold, Heading, Para, Table
from geokv.report.sheet.content import fates
from geokv.report.sheet.words import words_of

_ABOUT = (
    "TTFT: time to first token, median over the cell's requests. Gain: 1 − TTFT of a remote hit / "
    "TTFT of recomputing; change: of the gain, against 0 km. Bound: RTT + bytes / line rate + "
    "prefill of the rest; no fetch can be faster. Energy: a proxy of GPU, optics and moving bits."
)
_ABOUT_DRILL = (
    "Fetched and lost count chunks; wrong and hung count requests. Times after a fault are ms from "
    "when it was seen to take effect or, of what comes back, from when it was seen to be healed."
)


def results_section(summary: dict[str, Any], run_dir: Path) -> Section:
    """A row per cell; of a drill also what followed each fault."""
    blocks = _drill(summary) if summary.get("kind") == "drill" else _cells(summary)
    for pivot in pivots(summary):
        blocks += [Heading(pivot.title, 3), Table(pivot.head, pivot.rows, numbers=True)]
    return Section("results", "Results", [*blocks, *_answers(summary)])


def _cells(summary: dict[str, Any]) -> list[Block]:
    titles, rows = wide_table(summary)
    cells = summary["cells"]
    tones = [
        "bad" if not cell["valid"] else "quiet" if cell["out_of_range"] else "" for cell in cells
    ]
    said = _ABOUT
    if any(cell["valid"] for cell in cells):
        said += " With hosts, switches and PUE it is under Energy."
    if any(cell["out_of_range"] for cell in cells):
        said += " * out of range: shown for comparison, no limit applies."
    if not all(cell["valid"] for cell in cells):
        said += " void, without a number: a link was off its plan, or the machine did not keep up."
    groups = [(column.group, column.short) for column in wide_columns(summary)]
    table = Table(titles, rows, numbers=True, tones=tones, groups=groups)
    return [table, Para(said, quiet=True)]


def _drill(summary: dict[str, Any]) -> list[Block]:
    cells = summary["cells"]
    if is_sweep(summary):
        blocks: list[Block] = [Table(sweep_titles(summary), sweep_rows(summary), numbers=True)]
    else:
        rows = [cell_row(cell) for cell in cells]
        tones = ["quiet" if cell["control"] else "" for cell in cells]
        blocks = [Table(cell_titles(), rows, numbers=True, tones=tones)]
    if rows := fault_rows(summary):
        blocks += [Heading("Faults, and what followed", 3)]
        blocks += [Table(fault_titles(), rows, numbers=True)]
    blocks.append(Para(_ABOUT_DRILL, quiet=True))
    said = "What became of every request and every fetch"
    return [*blocks, Fold(said, fates(summary, words_of("en")))]


def _answers(summary: dict[str, Any]) -> list[Block]:
    shown = answers(summary)
    if not shown:
        return []
    rows = [[one.question, one.answer, one.fetched, "; ".join(one.controls)] for one in shown]
    head = ["question", "recomputed", "fetched", "controls"]
    return [Heading("Answers", 3), Table(head, rows, [one.ok for one in shown])]
