"""The two panels of a distance figure: cells in range to scale, those out of range beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from geokv.report import words
from geokv.report.style import MUTED, SHADE

_WIDE_INCH = 8.6
_FLATTENS = 2.0
"""Far cells this much taller than the near ones get a y axis of their own."""


class Panels:
    """A figure with a left panel over km, and a narrow right one for cells out of range.

    Cells whose links were off their plan are left out: they have no number (INV-7).

    Args:
        to_scale: whether the left panel spaces its cells by their km.
        height: the tallest thing a cell will show. Both panels share one y axis unless
            that of the far cells would flatten the near ones.
    """

    def __init__(
        self, summary: dict[str, Any], *, to_scale: bool, height: Callable[[dict[str, Any]], float]
    ) -> None:
        valid = [cell for cell in summary["cells"] if cell["valid"]]
        self.near = sorted((c for c in valid if not c["out_of_range"]), key=_km)
        self.far = sorted((c for c in valid if c["out_of_range"]), key=_km)
        self.to_scale = to_scale
        near_top = max(map(height, self.near), default=0.0)
        self.shared = max(map(height, self.far), default=0.0) <= _FLATTENS * near_top
        self.figure = Figure(figsize=(_WIDE_INCH, 4.9))
        widths = [1.0, 0.16 + 0.07 * len(self.far)] if self.far else [1.0]
        grid = self.figure.add_gridspec(
            1, len(widths), width_ratios=widths, wspace=0.05, left=0.085,
            right=0.975 if self.shared else 0.92, bottom=0.155, top=0.80,
        )  # fmt: skip
        self.left: Any = self.figure.add_subplot(grid[0])
        self.right: Any = None
        if self.far:
            self._add_right(grid[1])

    def _add_right(self, place: Any) -> None:
        self.right = self.figure.add_subplot(place, sharey=self.left if self.shared else None)
        self.right.set_facecolor(SHADE)
        self.right.spines["left"].set_visible(False)
        if self.shared:
            self.right.tick_params(labelleft=False)
        else:
            self.right.yaxis.tick_right()
            self.right.tick_params(axis="y", labelcolor=MUTED)

    def sides(self) -> list[tuple[Any, list[dict[str, Any]], list[float]]]:
        """(axes, cells, x of each cell) for each panel."""
        near_x = [_km(cell) for cell in self.near] if self.to_scale else _steps(self.near)
        sides = [(self.left, self.near, near_x)]
        if self.right is not None:
            sides.append((self.right, self.far, _steps(self.far)))
        return sides

    def _right_label(self) -> str:
        own = "" if self.shared else ", own y axis"
        return f"km, out of range\n(not to scale{own})"

    def finish(self, title: str, summary: dict[str, Any], y_label: str) -> Figure:
        """Titles, axes and the line that says what this is."""
        for axes, cells, xs in self.sides():
            axes.grid(axis="x", visible=False)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axes.set_xticks(xs, [f"{cell['km']:g}" for cell in cells])
            if not self.to_scale or axes is self.right:
                axes.set_xlim(-0.6, len(xs) - 0.4)
        self.left.set_ylabel(y_label)
        self.left.set_xlabel("fibre between the sites, km")
        if self.right is not None:
            self.right.set_xlabel(self._right_label(), color=MUTED)
        size = title_size(title, _WIDE_INCH)
        self.figure.text(0.085, 0.945, title, fontsize=size, fontweight="bold", va="center")
        self.figure.text(
            0.085, 0.895, wrapped(about(summary)), fontsize=8, color=MUTED, va="center"
        )
        return self.figure


def about(summary: dict[str, Any]) -> str:
    """What ran, in facts that a dot divides."""
    ran = summary["ran"]
    return (
        f"{words.asked(ran)} · "
        f"{ran['model']} stands for {ran['stands_for']} · S = {ran['byte_scale']} · "
        f"{ran['clock']} clock · kernel {ran['kernel']} · {words.seeds(ran)} · "
        f"n = {ran['requests']}"
    )


def single_axis(summary: dict[str, Any]) -> bool:
    """Whether distance is all that changes, so that a figure over km is the whole run."""
    return not words.other_settings(summary)


def _km(cell: dict[str, Any]) -> float:
    return float(cell["km"])


def _steps(cells: list[dict[str, Any]]) -> list[float]:
    return [float(index) for index in range(len(cells))]


def title_size(title: str, wide_inch: float) -> float:
    """The size in points at which a title fits into one line: 13, or less for a long one."""
    return min(13.0, 13.0 * 7.4 * wide_inch / max(len(title), 1))


def wrapped(text: str, width: int = 118) -> str:
    """Lines of at most ``width`` characters, broken between facts only."""
    lines = [""]
    for fact in text.split(" · "):
        joined = f"{lines[-1]} · {fact}" if lines[-1] else fact
        if len(joined) > width:
            lines.append(fact)
        else:
            lines[-1] = joined
    return "\n".join(lines)
