"""The numbers of a run: its table, what a sweep shows as a whole, its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report.answers import answers
from geokv.report.drill_sweep import is_sweep, sweep_rows, sweep_titles
from geokv.report.drill_words import cell_row, cell_titles, fault_rows, fault_titles
from geokv.report.grid import wide_table
from geokv.report.page.chart import kept
from geokv.report.page.section import Section
from geokv.report.pivot import pivots
from geokv.report.sheet.blocks import Block, Heading, Para, Table

_ABOUT = (
    "TTFT: median over the cell's requests. Gain: 1 − TTFT of a remote hit / TTFT of recomputing; "
    "change: of the gain, against 0 km. Bound: RTT + bytes / line rate + prefill of the rest. "
    "Energy is a proxy. * out of range: shown for comparison, no limit applies."
)


def results_section(summary: dict[str, Any], run_dir: Path) -> Section:
    """A row per cell; of a drill also what followed each fault."""
    if summary.get("kind") == "drill":
        blocks = _drill(summary)
    else:
        titles, rows = wide_table(summary)
        blocks = [
            Table(titles, rows, numbers=True, tones=[_tone(cell) for cell in summary["cells"]]),
            Para(_ABOUT, quiet=True),
        ]
    for pivot in pivots(summary):
        blocks += [Heading(pivot.title, 3), Table(pivot.head, pivot.rows, numbers=True)]
    return Section("results", "Results", [*blocks, *_answers(summary)])


def figures_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    blocks: list[Block] = []
    blocks += kept(run_dir, "ttft_vs_km", "Median time to first token of every arm against km")
    blocks += kept(run_dir, "remote_hit_spans", "Spans of a remote hit, stacked, against km")
    for asked in summary.get("figures", []):
        blocks += kept(run_dir, asked["name"], asked["title"])
    return Section("figures", "Figures", blocks) if blocks else None


def _drill(summary: dict[str, Any]) -> list[Block]:
    cells = summary["cells"]
    if is_sweep(summary):
        blocks: list[Block] = [Table(sweep_titles(summary), sweep_rows(summary), numbers=True)]
    else:
        blocks = [Table(cell_titles(), [cell_row(cell) for cell in cells], numbers=True)]
    if rows := fault_rows(summary):
        blocks += [Heading("Faults, and what followed", 3), Table(fault_titles(), rows)]
    return blocks


def _tone(cell: dict[str, Any]) -> str:
    if not cell["valid"]:
        return "bad"
    return "quiet" if cell["out_of_range"] else ""


def _answers(summary: dict[str, Any]) -> list[Block]:
    shown = answers(summary)
    if not shown:
        return []
    rows = [[one.question, one.answer, one.fetched, "; ".join(one.controls)] for one in shown]
    head = ["question", "recomputed", "fetched", "controls"]
    return [Heading("Answers", 3), Table(head, rows, [one.ok for one in shown])]
