"""A thing over two swept values, as colour and number, and where fetching begins to pay."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from geokv.report.pivot import axis_label, pick, values_of
from geokv.report.plot_frame import Frame
from geokv.report.quantities import QUANTITIES, shown, value
from geokv.report.style import HEAT, INK
from geokv.report.words import VOID
from geokv.units import parse_rate

_DARK = 0.32
"""So far from the middle of the scale, words are white."""


def draw(summary: dict[str, Any], figure: dict[str, Any]) -> Figure | None:
    """The figure; None when no cell has a number."""
    cells, of = summary["cells"], figure["of"]
    seen = [math.log10(one) for cell in cells if (one := value(cell, of)) is not None and one > 0]
    if not seen:
        return None
    across, down = values_of(cells, figure["x"]), values_of(cells, figure["y"])
    height = 0.46 * len(down) + 0.6
    title = f"{figure['title']}: {QUANTITIES[of].label}"
    frame = Frame(summary, title, figure["panels"], height=height, left=1.1)
    # White is 1, the break-even; the same step to either side has the same strength.
    far = max(map(abs, seen)) or 1.0
    if of != "ttft_over_recompute":
        norm = TwoSlopeNorm((min(seen) + max(seen)) / 2, min(seen) - 1e-9, max(seen) + 1e-9)
    else:
        norm = TwoSlopeNorm(0.0, -far, far)
    for axes, _, column in frame.panels():
        for y, low in enumerate(down):
            for x, one in enumerate(across):
                place = {figure["panels"]: column, figure["y"]: low, figure["x"]: one}
                _square(axes, x, y, pick(cells, place), of, norm)
        axes.set_xlim(-0.5, len(across) - 0.5)
        axes.set_ylim(-0.5, len(down) - 0.5)
        axes.set_xticks(range(len(across)), [str(one) for one in across])
        axes.set_yticks(range(len(down)), [_thousands(one) for one in down])
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
    frame.label(axis_label(figure["x"]), axis_label(figure["y"]))
    if of == "ttft_over_recompute" and figure["x"].endswith(".rate"):
        _break_even(frame, summary, figure, across, down)
    return frame.figure


def _square(axes: Any, x: int, y: int, cell: Any, of: str, norm: TwoSlopeNorm) -> None:
    found = None if cell is None else value(cell, of)
    found = found or None  # nothing has no logarithm
    colour = "#f0f1f5" if found is None else HEAT(norm(math.log10(found)))
    axes.add_patch(
        Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, facecolor=colour, edgecolor="none", zorder=1)
    )
    text = VOID if cell is not None and not cell["valid"] else shown(found, of)
    # Above the middle, where the marks of the break-even are.
    strong = found is not None and abs(norm(math.log10(found)) - 0.5) > _DARK
    axes.text(
        x, y + 0.2, text, ha="center", va="center", fontsize=8, zorder=5,
        color="white" if strong else INK,
        bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.8},
    )  # fmt: skip


def _break_even(
    frame: Frame,
    summary: dict[str, Any],
    figure: dict[str, Any],
    across: list[Any],
    down: list[Any],
) -> None:
    """Predicted as a line from row to row, measured as a mark in each."""
    rates = [parse_rate(one) / 1e9 for one in across]
    any_seen = False
    for axes, _, column in frame.panels():
        line, marks = [], []
        for y, low in enumerate(down):
            place = {figure["panels"]: column, figure["y"]: low}
            found = [
                one
                for one in summary["crossovers"]
                if all(one["settings"].get(a) == v for a, v in place.items() if a is not None)
            ]
            for one in found[:1]:
                line.append((_at(one["predicted_gbps"], rates), y))
                if one["measured_gbps"] is not None:
                    marks.append((_at(one["measured_gbps"], rates), y - 0.18))
        xs = [x for x, y in line for _ in (0, 1)]
        ys = [y + side for _, y in line for side in (-0.5, 0.5)]
        axes.plot(xs, ys, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), zorder=4, clip_on=False)
        axes.plot(
            [x for x, _ in marks], [y for _, y in marks], color=INK, marker="D", markersize=5,
            markerfacecolor="white", linestyle="none", zorder=5,
        )  # fmt: skip
        any_seen = any_seen or bool(line)
    if any_seen:
        frame.legend(
            [
                Line2D([], [], color=INK, linewidth=1.4, linestyle=(0, (4, 2))),
                Line2D([], [], color=INK, marker="D", markerfacecolor="white", linestyle="none"),
            ],
            ["break-even on paper", "measured (blue: fetching is faster)"],
        )


def _at(rate_gbps: float | None, rates: list[float]) -> float:
    """Where a rate lies between the columns; outside of them, at the edge."""
    if rate_gbps is None or rate_gbps >= rates[-1]:
        return len(rates) - 0.5
    if rate_gbps <= rates[0]:
        return -0.5
    for place in range(len(rates) - 1):
        low, high = rates[place], rates[place + 1]
        if low <= rate_gbps <= high:
            return place + math.log(rate_gbps / low) / math.log(high / low)
    return len(rates) - 0.5


def _thousands(one: Any) -> str:
    return f"{one:,}" if isinstance(one, int) else str(one)
