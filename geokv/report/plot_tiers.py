"""Which tier served which share of the prompt tokens, as one swept value changes."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from geokv.measure.hits import SOURCES
from geokv.report import words
from geokv.report.pivot import ARMS, axis_label, pick, values_of
from geokv.report.plot_frame import Frame
from geokv.report.style import INK, TIER_COLOURS, stacked

_WIDTH = 0.36


def draw(summary: dict[str, Any], figure: dict[str, Any]) -> Figure | None:
    """A bar per value and arm, with the arm's median TTFT on top; None without any."""
    cells = summary["cells"]
    arms = [arm for arm in ARMS if arm in cells[0]["arms"]]
    if not arms or not any(cell["valid"] for cell in cells):
        return None
    across = values_of(cells, figure["x"])
    frame = Frame(summary, figure["title"], figure["panels"], height=3.4)
    handles: dict[str, Any] = {}
    for axes, _, column in frame.panels():
        for number, arm in enumerate(arms):
            shift = (number - (len(arms) - 1) / 2) * (_WIDTH + 0.04)
            for x, one in enumerate(across):
                cell = pick(cells, {figure["panels"]: column, figure["x"]: one})
                if cell is None or not cell["valid"]:
                    continue
                _bar(axes, x + shift, cell["arms"][arm], handles)
                axes.text(
                    x + shift, 1.02, f"{words.ARM_TITLES[arm].split()[0]}\n{_ms(cell, arm)}",
                    ha="center", va="bottom", fontsize=7, color=INK,
                )  # fmt: skip
        axes.set_xticks(range(len(across)), [str(one) for one in across])
        axes.set_xlim(-0.6, len(across) - 0.4)
        axes.set_ylim(0, 1.16)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.grid(axis="x", visible=False)
    frame.label(axis_label(figure["x"]), "prompt tokens, and median TTFT in ms")
    seen = [tier for tier in SOURCES if tier in handles]
    frame.legend([handles[tier] for tier in seen], seen)
    return frame.figure


def _bar(axes: Any, x: float, arm: dict[str, Any], handles: dict[str, Any]) -> None:
    bottom = 0.0
    for tier in SOURCES:
        share = arm["hits"][tier]["share"] or 0.0
        (drawn,) = axes.bar(
            [x],
            [share],
            bottom=[bottom],
            width=_WIDTH,
            zorder=3,
            **stacked(tier, TIER_COLOURS),
        )
        bottom += share
        if share or tier in handles:
            handles.setdefault(tier, drawn)


def _ms(cell: dict[str, Any], arm: str) -> str:
    found = cell["arms"][arm]["ttft_p50_ms"]
    return words.NONE if found is None else f"{found:,.0f}"
