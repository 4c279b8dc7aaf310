"""How the times to first token of each arm are spread: an empirical distribution per cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from geokv.report.plot_panels import about, wrapped
from geokv.report.style import INK, MUTED, SERIES

MOST_LINES = 8
_PANEL_INCH = 1.75
_LEGEND_SIGNS, _HANDLE_SIGNS = 118, 7
"""Signs of a line of the legend, and what the drawn line before a name takes of it."""
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))


@dataclass(frozen=True)
class Panel:
    """``lines``: what each is called → its times to first token, ms."""

    title: str
    lines: Mapping[str, Sequence[float]]


def draw(summary: dict[str, Any], panels: Sequence[Panel], title: str) -> Figure | None:
    """A panel per arm, side by side, each with its own time axis; None without any time.

    Lines of one name look alike in every panel: shade by order, dashes by turns, so that they
    can be told apart without colour.
    """
    panels = [panel for panel in panels if any(panel.lines.values())]
    if not panels:
        return None
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    ncols, rows = _legend_shape(names)
    # Title, what ran, the legend, panels with their titles, and the time axis, from the top down.
    head = 0.76 + (0.2 * rows if len(names) > 1 else 0.0)
    high = head + 0.4 + _PANEL_INCH + 0.56
    figure = Figure(figsize=(8.6, high))
    grid: Any = figure.subplots(
        1, len(panels), sharey=True, squeeze=False,
        gridspec_kw={
            "left": 0.075, "right": 0.985, "bottom": 0.56 / high,
            "top": 1 - (head + 0.4) / high, "wspace": 0.1,
        },
    )[0]  # fmt: skip
    handles: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=True):
        for name, times in panel.lines.items():
            if times:
                number = names.index(name)
                handles[name] = _step(axes, sorted(times), number, len(names))
        counts = sorted({len(times) for times in panel.lines.values() if times})
        shown = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
        axes.set_title(f"{panel.title} ({shown})", fontsize=9.5, color=MUTED)
        axes.set_xlabel("TTFT, ms")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.ticklabel_format(axis="x", useOffset=False)
        _room(axes)
    grid[0].set_ylim(0, 1.02)
    grid[0].set_yticks([0, 0.25, 0.5, 0.75, 1])
    grid[0].set_ylabel("share of requests")
    figure.text(0.075, 1 - 0.24 / high, title, fontsize=13, fontweight="bold", va="center")
    figure.text(0.075, 1 - 0.4 / high, wrapped(about(summary)), fontsize=8, color=MUTED, va="top")
    if len(names) > 1:
        figure.legend(
            list(handles.values()), list(handles), loc="upper left",
            bbox_to_anchor=(0.066, 1 - 0.7 / high), ncols=ncols, handlelength=1.8,
            columnspacing=1.5, labelspacing=0.25, fontsize=9,
        )  # fmt: skip
    return figure


def _legend_shape(names: Sequence[str]) -> tuple[int, int]:
    """Columns and rows that hold names of this length."""
    ncols = max(1, min(len(names), _LEGEND_SIGNS // (max(map(len, names)) + _HANDLE_SIGNS)))
    return ncols, -(-len(names) // ncols)


def _room(axes: Any) -> None:
    """At least a hundredth of the value from side to side: nanoseconds are no spread to look at."""
    low, high = axes.get_xlim()
    middle = (low + high) / 2
    half = max((high - low) / 2, 0.005 * middle)
    axes.set_xlim(middle - half, middle + half)


def _step(axes: Any, times: list[float], number: int, count: int) -> Any:
    """From 0 up at every time that was seen, and level to both sides."""
    n = len(times)
    xs = [times[0], *times]
    ys = [index / n for index in range(n + 1)]
    (line,) = axes.step(
        xs, ys, where="post", color=_colour(number, count),
        linestyle=_DASHES[number % len(_DASHES)], linewidth=1.7,
    )  # fmt: skip
    return line


def _colour(number: int, count: int) -> str:
    return INK if count == 1 else SERIES[number % len(SERIES)]
