"""One table over many drills, in either language."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from geokv.drills.suite import Ended
from geokv.drills.watch import STYLES
from geokv.report.sheet import figures
from geokv.report.sheet.shown import shown_ms
from geokv.report.sheet.steps import describe
from geokv.report.sheet.words import Words
from geokv.report.sheet.write import sheet_file
from geokv.scenario import Scenario

_MOST_STEPS = 2
_MOST_REASONS = 3


def titles(words: Words) -> list[str]:
    """Heads of the columns."""
    names = ("drill", "what", "verdict", "control_column", "worst_ttft", "detected", "back_after")
    return [*(words.text[name] for name in names), words.text["real"]]


def what_was_done(scenario: Scenario, words: Words) -> str:
    """The first events of a timeline in words, and how many more there are."""
    steps = [describe(event, words, lasting=False) for event in scenario.timeline]
    more = len(steps) - _MOST_STEPS
    return "; ".join([*steps[:_MOST_STEPS], *([f"+{more}"] if more > 0 else [])]) or "–"


def row(ended: Ended, words: Words) -> list[str]:
    """As ``titles``."""
    what = what_was_done(ended.task.scenario, words)
    verdict = ended.verdict
    word = words.verdicts[verdict][0] if verdict in words.verdicts else words.text[verdict]
    summary = ended.summary
    if summary is None:
        return [ended.task.name, what, word, "–", "–", "–", "–", f"{ended.real_s:.0f}"]
    return [
        ended.task.name,
        what,
        word,
        figures.control_words(summary, words),
        shown_ms(figures.worst_ttft_ms(summary)),
        shown_ms(figures.detected_ms(summary)),
        shown_ms(figures.back_after_ms(summary)),
        f"{ended.real_s:.0f}",
    ]


def print_drills(all_ended: Sequence[Ended], words: Words, console: Console) -> None:
    """The table, why what did not pass did not, and where the sheets are."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, title in enumerate(titles(words)):
        table.add_column(title, justify="right" if number > 3 else "left", no_wrap=number in (0, 2))
    for ended in all_ended:
        cells: list[Any] = list(row(ended, words))
        cells[2] = Text(cells[2], style=STYLES.get(ended.verdict, "yellow"))
        table.add_row(*cells)
    console.print(table)
    for ended in all_ended:
        for line in reasons(ended):
            console.print(Text(line), soft_wrap=True)
    passed = sum(ended.verdict == "pass" for ended in all_ended)
    said = words.text["total"].format(passed=passed, count=len(all_ended))
    console.print(Text(f"\n{said}", style="bold"))
    for ended in all_ended:
        if ended.summary is not None and ended.run_dir is not None:
            path: Path = sheet_file(ended.run_dir, words.language)
            console.print(Text(f"  {ended.task.name}: {path}"), soft_wrap=True)


def reasons(ended: Ended) -> list[str]:
    """What is to be said of one that did not pass."""
    name = ended.task.name
    if ended.summary is not None:
        why = ended.summary["reasons"]
        more = len(why) - _MOST_REASONS
        return [f"{name}: {one}" for one in why[:_MOST_REASONS]] + (
            [f"{name}: … {more} more"] if more > 0 else []
        )
    if not ended.error:
        return []
    hint = [f"  → {ended.hint}"] if ended.hint else []
    folder = [f"  → {ended.run_dir}/log.txt"] if ended.run_dir else []
    return [f"{name}: {ended.error}", *hint, *folder]
