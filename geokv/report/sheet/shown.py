"""Small things that several parts of a sheet show alike."""

from __future__ import annotations

from typing import Any

from geokv.measure.drill.story import Story
from geokv.report.sheet.blocks import Figure
from geokv.report.sheet.plot import draw_timeline
from geokv.report.sheet.words import Words
from geokv.report.words import MARKS


def shown_ms(value: float | None) -> str:
    """``12.65 ms``, ``1.532 s``, or a dash."""
    if value is None:
        return "–"
    # A number and its unit stay in one line.
    return f"{value:.2f}\u00a0ms" if value < 1000 else f"{value / 1000:.3f}\u00a0s"


def label_of(cell: dict[str, Any], words: Words) -> str:
    """Of a cell, as people call it."""
    if cell["control"]:
        return words.text["control_column"]
    label = str(cell["label"])
    return words.text["as_written"] if label in ("", "as written") else label


def mark_of(mark: bool | str | None) -> str:
    """✓, ✗, ? or nothing."""
    return mark if isinstance(mark, str) else MARKS[mark]


def figure(story: Story, words: Words, title: str, said: str) -> Figure:
    """The drawing of one cell, with its place in the run folder."""
    file = f"plots/timeline-{story.cell}.{words.language}.svg"
    return Figure(draw_timeline(story, words, title), file, said, title)
