"""A comparison on a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from geokv.report.compare.comparison import Comparison
from geokv.report.compare.rows import ABOUT, TITLES, header, row
from geokv.report.console import table_console

_STYLES = {"slower": "red", "faster": "green", "void": "yellow", "missing": "yellow"}


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print what is compared, a table per run but the base, and what each comes to."""
    console = console or table_console()
    scenario = comparison.base.scenario
    console.print(Text(scenario.title, style="bold"))
    for line in header(comparison):
        # A path that is cut in two cannot be copied.
        console.print(
            Text(line, style="yellow" if line.startswith("  set-ups") else "dim"),
            soft_wrap=True,
        )
    for number, one in enumerate(comparison.others, start=1):
        console.print(Text(f"\nrun {number} against the base", style="bold"))
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for title in TITLES:
            right = title in ("base p50 ms", "this p50 ms", "ratio", "p")
            table.add_column(title, justify="right" if right else "left", overflow="fold")
        for pair in one.pairs:
            *rest, said = row(pair)
            table.add_row(*rest, Text(said, style=_STYLES.get(pair.outcome, "")))
        console.print(table)
        console.print(Text(f"run {number}: {one.said}"))
    console.print(Text(f"\n{ABOUT}", style="dim"))
    if comparison.forced:
        console.print(Text("! compared by force: these runs were not set up alike", style="yellow"))
