"""How much the gain of fetching changes with distance, both readings, and what is allowed."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from geokv.report.plot_panels import Panels, single_axis
from geokv.report.style import INK, SERIES
from geokv.scenario.expect import UpToKm


def draw(summary: dict[str, Any], limit: UpToKm | None) -> Figure | None:
    """The figure; None with fewer than two distances, or when more than distance changes.

    Args:
        limit: what the scenario allows of reading A, and up to where.
    """
    panels = Panels(summary, to_scale=True, height=_change)
    if not single_axis(summary) or sum(_known(cell) for cell in panels.near) < 2:
        return None
    for axes, cells, xs in panels.sides():
        seen = [(x, cell) for x, cell in zip(xs, cells, strict=True) if _known(cell)]
        place = [x for x, _ in seen]
        axes.plot(
            place, [cell["gain_change_percent"] for _, cell in seen], color=SERIES[0], marker="o",
            markersize=5.5, linewidth=1.8, zorder=3, label="reading A: % of the gain at 0 km",
        )  # fmt: skip
        axes.plot(
            place, [abs(cell["gain_change_points"]) for _, cell in seen], color=SERIES[2],
            marker="s", markersize=4.5, linewidth=1.4, linestyle=(0, (5, 2)), zorder=3,
            label="reading B: percentage points",
        )  # fmt: skip
    near = [cell["km"] for cell in panels.near]
    if limit is not None and near:
        up_to = min(limit.up_to_km, max(near))
        panels.left.plot(
            [min(near), up_to], [limit.limit] * 2, color=INK, linewidth=1.2,
            linestyle=(0, (2, 2)), zorder=2, label=f"allowed: {limit.limit:g} %",
        )  # fmt: skip
    handles, labels = panels.left.get_legend_handles_labels()
    panels.figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0.075, 0.877), ncols=len(labels),
        handlelength=2.2, columnspacing=1.8, fontsize=9,
    )  # fmt: skip
    far_x = max(near) or 1.0
    panels.left.set_xlim(-0.03 * far_x, 1.03 * far_x)
    return panels.finish(
        "How much distance changes what fetching gains", summary, "change against 0 km"
    )


def _known(cell: dict[str, Any]) -> bool:
    return cell["gain_change_percent"] is not None


def _change(cell: dict[str, Any]) -> float:
    return float(cell["gain_change_percent"] or 0.0)
