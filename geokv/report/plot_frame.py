"""A grid of panels for a sweep: title, what ran, and a value of an axis over each panel."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from geokv.report.pivot import axis_word, values_of
from geokv.report.plot_panels import about, title_size, wrapped
from geokv.report.style import MUTED

_INCH_PER_PANEL = 3.3
_BOTTOM_INCH, _RIGHT_INCH, _LINE_INCH = 0.62, 0.25, 0.15


class Frame:
    """``rows`` × ``columns`` panels that share their axes.

    Args:
        columns, rows: axes whose values the panels stand for; None is one column or row.
        height: of one panel, inches.
        left: inches left free for the words of the y axis.
    """

    def __init__(
        self,
        summary: dict[str, Any],
        title: str,
        columns: str | None,
        rows: str | None = None,
        *,
        height: float = 3.1,
        left: float = 0.8,
    ) -> None:
        cells = summary["cells"]
        self.columns, self.rows = values_of(cells, columns), values_of(cells, rows)
        wide = max(8.6, left + _RIGHT_INCH + _INCH_PER_PANEL * len(self.columns))
        lines = wrapped(about(summary), round(118 * wide / 8.6))
        # Title, what ran, the legend and the panels' own titles, from the top down.
        words = 0.44 + _LINE_INCH * (lines.count("\n") + 1)
        top = words + 0.62
        high = top + _BOTTOM_INCH + height * len(self.rows)
        self.figure = Figure(figsize=(wide, high))
        grid = self.figure.subplots(
            len(self.rows), len(self.columns), sharex=True, sharey=True, squeeze=False,
            gridspec_kw={
                "left": left / wide, "right": 1 - _RIGHT_INCH / wide, "bottom": _BOTTOM_INCH / high,
                "top": 1 - top / high, "wspace": 0.07, "hspace": 0.2,
            },
        )  # fmt: skip
        self.grid: Any = grid
        for row, row_value in enumerate(self.rows):
            for column, value in enumerate(self.columns):
                parts = [
                    f"{axis_word(axis)} {one}"
                    for axis, one in ((columns, value), (rows, row_value))
                    if axis is not None
                ]
                if parts:
                    grid[row][column].set_title(", ".join(parts), fontsize=9.5, color=MUTED)
        left /= wide
        self.figure.text(
            left, 1 - 0.28 / high, title, fontsize=title_size(title, wide), fontweight="bold",
            va="center",
        )  # fmt: skip
        self.figure.text(left, 1 - 0.46 / high, lines, fontsize=8, color=MUTED, va="top")
        self._legend_at = (left - 0.008, 1 - (words + 0.18) / high)

    def panels(self) -> list[tuple[Any, Any, Any]]:
        """(axes, value of the rows' axis, value of the columns' axis) of each panel."""
        return [
            (self.grid[row][column], row_value, value)
            for row, row_value in enumerate(self.rows)
            for column, value in enumerate(self.columns)
        ]

    def label(self, x: str, y: str) -> None:
        """Along the bottom and the left side."""
        for axes in self.grid[-1]:
            axes.set_xlabel(x)
        for row in self.grid:
            row[0].set_ylabel(y)

    def legend(self, handles: list[Any], labels: list[str]) -> None:
        """In one line between the head and the panels."""
        self.figure.legend(
            handles, labels, loc="center left", fontsize=9, ncols=len(labels), handlelength=1.8,
            bbox_to_anchor=self._legend_at, columnspacing=1.6,
        )  # fmt: skip
