"""A drill on a terminal: cells, faults with what followed them, judged lines, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from geokv.measure.drill.shown import brief
from geokv.measure.drill.verdict import CONTROL_FAILS
from geokv.report import words
from geokv.report.differences import differences_in_short
from geokv.report.drill_sweep import is_sweep, sweep_rows, sweep_titles
from geokv.report.drill_words import cell_row, cell_titles, fault_rows, fault_titles, header

_STYLES = {"pass": "green", CONTROL_FAILS: "green", "fail": "bold red"}
_MARKS = {True: "green", False: "red", None: "yellow"}


def drill_parts(
    summary: dict[str, Any], tables: Sequence[RenderableType] = ()
) -> list[RenderableType]:
    """Everything between title and verdict, for ``console.render``.

    Args:
        tables: what a sweep shows as a whole.
    """
    parts: list[RenderableType] = [Text(line, style="dim") for line in header(summary)]
    differ = [Text(said, style="dim") for said in differences_in_short(summary)]
    if is_sweep(summary):
        parts.append(_sweep(summary))
        return [*parts, *tables, *differ, judged(summary), *_excerpts(summary)]
    parts += [_cells(summary), *differ]
    if rows := fault_rows(summary):
        parts.append(_faults(rows))
    parts.append(judged(summary))
    for excerpt in _excerpts(summary):
        parts.append(excerpt)
    return parts


def print_recheck(checked: dict[str, Any], console: Console | None = None) -> None:
    """What ``measure.drill.recheck`` found, cell by cell, with the events of what is wrong."""
    console = console or Console()
    for cell in checked["cells"]:
        what = "control, broken on purpose" if cell["control"] else ""
        planted = f"planted: {cell['sabotage']}" if cell["sabotage"] else ""
        name = cell["label"] or ("" if cell["cell"] is None else f"cell {cell['cell']}")
        head = " · ".join(part for part in (name, what, planted) if part)
        console.print(Text(f"{head or 'history'} ({cell['events']:,} events)", style="bold"))
        for problem in cell["problems"]:
            console.print(Text(f"! {problem}", style="yellow"))
        table = Table.grid(padding=(0, 1))
        for line in cell["lines"]:
            mark = Text(words.MARKS[line["ok"]], style=_MARKS[line["ok"]])
            table.add_row(mark, line["name"], Text(line["inv"], style="dim"), Text(line["said"]))
        console.print(table)
        for line in cell["lines"]:
            for number, event in enumerate(line["excerpt"]):
                style = "dim" if number else ""
                head = f"\n{line['name']}:\n" if not number else ""
                console.print(Text(f"{head}  {event_text(brief(event))}", style=style))
    console.print(Text(f"\nhistory: {checked['verdict']}", style="bold"))


def _cells(summary: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, title in enumerate(cell_titles()):
        table.add_column(title, justify="right" if number > 1 else "left")
    for cell in summary["cells"]:
        label, word, *rest = cell_row(cell)
        style = "dim" if cell["control"] else ""
        table.add_row(label, Text(word, style=_STYLES.get(word, "yellow")), *rest, style=style)
    return table


def _sweep(summary: dict[str, Any]) -> Table:
    """Faults of every cell are in ``table.md``: here they would hide what is compared."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in sweep_titles(summary, short=True):
        table.add_column(title, justify="right", vertical="bottom")
    for row in sweep_rows(summary, short=True):
        *rest, word = row
        table.add_row(*rest, Text(word, style=_STYLES.get(word, "yellow")))
    return table


def _faults(rows: list[list[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, title in enumerate(fault_titles()):
        table.add_column(title, justify="right" if number > 2 else "left")
    for row in rows:
        table.add_row(*row)
    return table


def judged(summary: dict[str, Any]) -> Table:
    """Judged lines, of runs of both kinds."""
    table = Table.grid(padding=(0, 1))
    for item in summary["expectations"]:
        mark = Text(words.MARKS[item["ok"]], style=_MARKS[item["ok"]])
        table.add_row(mark, Text(item["name"], style="bold"), Text(item["said"]))
    return table


def _excerpts(summary: dict[str, Any]) -> list[Text]:
    """The events behind every broken line of a cell that should have none."""
    shown = []
    for cell in summary["cells"]:
        if cell["control"]:
            continue
        for line in cell["lines"]:
            if line["ok"] is False and line["excerpt"]:
                text = Text(f"\n{cell['label']}: {line['name']}: {line['said']}", style="red")
                for event in line["excerpt"]:
                    text.append(f"\n  {event_text(event)}", style="dim")
                shown.append(text)
    return shown


def event_text(event: dict[str, Any]) -> str:
    """One event in one line: ``1204.113 ms b use key=… …``."""
    first = f"{event['t_ns'] / 1e6:.6f} ms {event.get('site') or '-'} {event['op']}"
    skipped = {"t_ns", "site", "op", "cell"}
    rest = " ".join(f"{name}={value}" for name, value in event.items() if name not in skipped)
    return f"{first} {rest}".rstrip()
