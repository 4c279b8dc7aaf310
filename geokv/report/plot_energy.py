"""What a request draws at its site's meter, by arm and distance, part by part."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import StrMethodFormatter

from geokv.report.plot_panels import about, single_axis, wrapped
from geokv.report.style import MUTED, PART_COLOURS, stacked
from geokv.report.words import ARM_TITLES

_PART_TITLES = {
    "gpu_idle": "GPU idle",
    "gpu_prefill": "GPU prefill",
    "gpu_decode": "GPU decode",
    "host": "host",
    "optics": "optics",
    "switch": "switch",
    "transfer": "moving bits",
    "overhead": "cooling and losses (PUE)",
}
_SEEN = 0.002
"""A part that is nowhere this share of the tallest bar would only take a place in the legend."""


def draw(summary: dict[str, Any]) -> Figure | None:
    """The figure; None where more than distance changes, or nothing was measured."""
    if not single_axis(summary):
        return None
    out = {cell["cell"] for cell in summary["cells"] if cell["out_of_range"]}
    cells = [
        cell
        for cell in summary.get("energy", {}).get("cells", [])
        if cell["arms"] and cell["cell"] not in out
    ]
    arms = [arm for arm in ARM_TITLES if all(arm in cell["arms"] for cell in cells)]
    if not cells or not arms:
        return None
    figure = Figure(figsize=(8.6, 4.9))
    grid: Any = figure.subplots(
        1, len(arms), squeeze=False,
        gridspec_kw={"left": 0.085, "right": 0.985, "bottom": 0.13, "top": 0.72, "wspace": 0.24},
    )[0]  # fmt: skip
    tallest = max(cell["arms"][arm]["energy_j"] for cell in cells for arm in arms)
    seen = [
        part
        for part in PART_COLOURS
        if any(cell["arms"][arm]["parts_j"][part] >= _SEEN * tallest
               for cell in cells for arm in arms)
    ]  # fmt: skip
    for axes, arm in zip(grid, arms, strict=True):
        bottom = [0.0] * len(cells)
        for part in seen:
            heights = [cell["arms"][arm]["parts_j"][part] for cell in cells]
            axes.bar(
                range(len(cells)), heights, bottom=bottom, width=0.66, zorder=3,
                **stacked(part, PART_COLOURS),
            )  # fmt: skip
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axes.set_xticks(range(len(cells)), [f"{cell['km']:g}" for cell in cells])
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 1.06 * max(bottom))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.set_title(f"{ARM_TITLES[arm]}, own scale" if len(arms) > 1 else ARM_TITLES[arm],
                       fontsize=9.5, color=MUTED)  # fmt: skip
        axes.set_xlabel("km")
    grid[0].set_ylabel("J per request (proxy)")
    figure.legend(
        [Patch(**stacked(part, PART_COLOURS)) for part in seen],
        [_PART_TITLES[part] for part in seen],
        loc="upper left", bbox_to_anchor=(0.075, 0.862), ncols=len(seen), fontsize=8.5,
        handlelength=1.0, handleheight=1.0, columnspacing=1.1,
    )  # fmt: skip
    figure.text(
        0.085, 0.945, "Energy of a request, by part", fontsize=13, fontweight="bold", va="center"
    )
    figure.text(0.085, 0.895, wrapped(about(summary)), fontsize=8, color=MUTED, va="center")
    return figure
