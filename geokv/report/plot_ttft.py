"""TTFT against distance: one line per arm, and the bound no remote hit can beat."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from geokv.report import words
from geokv.report.plot_panels import Panels, single_axis
from geokv.report.style import ARM_COLOURS, ARM_MARKERS, INK


def draw(summary: dict[str, Any]) -> Figure | None:
    """The figure; None when no cell has a valid number or more than distance changes."""
    panels = Panels(summary, to_scale=True, height=_slowest)
    if not panels.near or not single_axis(summary):
        return None
    arms = [arm for arm in words.ARM_TITLES if arm in panels.near[0]["arms"]]
    for axes, cells, xs in panels.sides():
        for arm in arms:
            _line(axes, xs, cells, arm)
        _bound(axes, xs, cells)
    handles, labels = panels.left.get_legend_handles_labels()
    panels.figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0.075, 0.877), ncols=len(labels),
        handlelength=1.8, columnspacing=1.8, fontsize=9,
    )  # fmt: skip
    far_x = max(cell["km"] for cell in panels.near)
    panels.left.set_xlim(-0.03 * (far_x or 1), 1.03 * (far_x or 1))
    _say_gain(panels)
    return panels.finish(summary["scenario"]["title"], summary, "TTFT, ms (median)")


def _slowest(cell: dict[str, Any]) -> float:
    return max((arm["ttft_p50_ms"] or 0.0 for arm in cell["arms"].values()), default=0.0)


def _line(axes: Any, xs: list[float], cells: list[dict[str, Any]], arm: str) -> None:
    points = [
        (x, cell["arms"][arm]["ttft_p50_ms"], cell["arms"][arm]["interval"])
        for x, cell in zip(xs, cells, strict=True)
        if cell["arms"].get(arm) and cell["arms"][arm]["ttft_p50_ms"] is not None
    ]
    if not points:
        return
    colour = ARM_COLOURS[arm]
    px, py = [x for x, _, _ in points], [y for _, y, _ in points]
    axes.plot(
        px, py, color=colour, marker=ARM_MARKERS[arm], markersize=5.5, linewidth=1.8,
        label=words.ARM_TITLES[arm], zorder=3,
    )  # fmt: skip
    low = [y - interval["low_ms"] for _, y, interval in points]
    high = [interval["high_ms"] - y for _, y, interval in points]
    axes.errorbar(
        px, py, yerr=[low, high], fmt="none", color=colour, elinewidth=1, capsize=2.5, zorder=2
    )


def _bound(axes: Any, xs: list[float], cells: list[dict[str, Any]]) -> None:
    points = [
        (x, cell["arms"]["remote_hit"]["bound_ms"])
        for x, cell in zip(xs, cells, strict=True)
        if cell["arms"].get("remote_hit", {}).get("bound_ms") is not None
    ]
    if points:
        axes.plot(
            [x for x, _ in points], [y for _, y in points], color=INK, linewidth=1.1,
            linestyle=(0, (4, 2.5)), label="lower bound of a remote hit", zorder=4,
        )  # fmt: skip


def _say_gain(panels: Panels) -> None:
    """At the farthest cell in range, how much of the TTFT reuse saves there."""
    cell = panels.near[-1]
    remote, recompute = cell["arms"].get("remote_hit"), cell["arms"].get("recompute")
    if cell["gain"] is None or not remote or not recompute:
        return
    low, high = remote["ttft_p50_ms"], recompute["ttft_p50_ms"]
    if high <= low:
        return
    x = cell["km"]
    panels.left.annotate(
        "", (x, low), (x, high),
        arrowprops={
            "arrowstyle": "<->", "color": INK, "linewidth": 0.9, "shrinkA": 6, "shrinkB": 6,
        },
    )  # fmt: skip
    change = cell["gain_change_percent"]
    said = f"gain {words.percent(cell['gain'])}"
    if change is not None:
        said += f"\nchanged by {change:.2f} %\nagainst 0 km"
    panels.left.annotate(
        said, (x, (low + high) / 2), (-8, 0), textcoords="offset points", ha="right", va="center",
        fontsize=8.5,
    )  # fmt: skip
