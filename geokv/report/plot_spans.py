"""Where the time of a remote hit goes, by distance: its spans, stacked."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from geokv.report.plot_panels import Panels, single_axis
from geokv.report.style import INK, SPAN_COLOURS, stacked


def draw(summary: dict[str, Any]) -> Figure | None:
    """The figure; None without valid remote hits or when more than distance changes."""
    panels = Panels(summary, to_scale=False, height=lambda cell: sum(_spans(cell).values()))
    if not panels.near or not single_axis(summary):
        return None
    if not all(_spans(cell) for cell in panels.near + panels.far):
        return None
    # A span that is nowhere seen would only take a place in the legend.
    seen = [
        span
        for span in SPAN_COLOURS
        if any(_spans(cell)[span] >= 0.005 for cell in panels.near + panels.far)
    ]
    for axes, cells, xs in panels.sides():
        bottom = [0.0] * len(cells)
        for span in seen:
            heights = [_spans(cell)[span] for cell in cells]
            axes.bar(
                xs, heights, bottom=bottom, width=0.62, label=span.replace("_", " "), zorder=3,
                **stacked(span, SPAN_COLOURS),
            )  # fmt: skip
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        bounds = [cell["arms"]["remote_hit"].get("bound_ms") for cell in cells]
        for number, (x, bound) in enumerate(zip(xs, bounds, strict=True)):
            if bound is not None:
                label = {"label": "lower bound"} if number == 0 else {}
                axes.hlines(bound, x - 0.36, x + 0.36, color=INK, linewidth=1.4, zorder=4, **label)
    handles, labels = panels.left.get_legend_handles_labels()
    panels.figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0.075, 0.877), ncols=len(labels),
        handlelength=1.0, handleheight=1.0, columnspacing=1.4, fontsize=9,
    )  # fmt: skip
    title = "Where the time to first token of a remote hit goes"
    return panels.finish(title, summary, "span, ms (median of each)")


def _spans(cell: dict[str, Any]) -> dict[str, float]:
    spans: dict[str, float] = cell["arms"].get("remote_hit", {}).get("spans_ms", {})
    return spans
