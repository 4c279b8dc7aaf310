"""A measured thing over a swept value: a line per value of another axis, and what is expected."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from geokv.report.pivot import axis_label, axis_word, compared, pick, values_of
from geokv.report.plot_frame import Frame
from geokv.report.quantities import QUANTITIES, expected, value
from geokv.report.style import INK, SERIES, SERIES_MARKERS

_LOG_FROM = 8.0
"""Values that differ by more than this are drawn on a logarithmic axis."""
_DECADES_FROM = 200.0
"""And by more than this, with a line per decade only."""


def draw(summary: dict[str, Any], figure: dict[str, Any]) -> Figure | None:
    """The figure; None when no cell has a number."""
    cells, of = compared(summary), figure["of"]
    seen = [one for cell in cells if (one := value(cell, of)) is not None]
    if not seen:
        return None
    seen += [one for cell in cells if (one := expected(cell, of)) is not None]
    frame = Frame(summary, figure["title"], figure["panels"], figure["rows"])
    across, series = values_of(cells, figure["x"]), values_of(cells, figure["lines"])
    handles = {}
    paper = False
    for axes, row, column in frame.panels():
        for number, one in enumerate(series):
            colour, marker = SERIES[number % len(SERIES)], SERIES_MARKERS[number % len(SERIES)]
            place = {figure["rows"]: row, figure["panels"]: column, figure["lines"]: one}
            line = [pick(cells, {**place, figure["x"]: x}) for x in across]
            xs, ys = _points(line, value, of)
            (drawn,) = axes.plot(
                xs, ys, color=colour, marker=marker, markersize=5, linewidth=1.6, zorder=3
            )
            handles[one] = drawn
            xs, ys = _points(line, expected, of)
            paper = paper or bool(xs)
            axes.plot(xs, ys, color=INK, linewidth=0.9, linestyle=(0, (3, 2)), zorder=4)
        axes.set_xticks(range(len(across)), [str(one) for one in across])
        axes.set_xlim(-0.35, len(across) - 0.65)
        axes.grid(axis="x", visible=False)
    _scale(frame, seen)
    frame.label(axis_label(figure["x"]), QUANTITIES[of].label)
    labels = [f"{axis_word(figure['lines'])} {one}" for one in handles] if figure["lines"] else []
    shown = list(handles.values()) if labels else []
    if paper:
        shown.append(Line2D([], [], color=INK, linewidth=0.9, linestyle=(0, (3, 2))))
        labels.append(QUANTITIES[of].expected)
    if shown:
        frame.legend(shown, labels)
    return frame.figure


def _points(line: list[Any], get: Any, of: str) -> tuple[list[int], list[float]]:
    points = [
        (x, one)
        for x, cell in enumerate(line)
        if cell is not None and (one := get(cell, of)) is not None
    ]
    return [x for x, _ in points], [y for _, y in points]


def _scale(frame: Frame, seen: list[float]) -> None:
    axes = frame.grid[0][0]
    if min(seen) > 0 and max(seen) / min(seen) > _LOG_FROM:
        axes.set_yscale("log")
        steps = (1.0,) if max(seen) / min(seen) > _DECADES_FROM else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=steps))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, 1.06 * max(seen))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
