"""Predicted against measured GPU time, every point at hand: ``geokv profile check --plot``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator

from geokv.report.style import INK, MUTED, RC, SHADE, save

#: Colours and shapes both tell sources apart; the colours also in grey and to the colour-blind.
_LOOKS = (("#2459b5", "o"), ("#e2902a", "^"), ("#2a7f62", "s"), ("#8e6bb8", "D"))
_MOST_POINTS = 150
_RATIOS = (0.4, 1.6)


@dataclass(frozen=True)
class Cloud:
    """Points of one source.

    Args:
        panel: (row, column) titles: phase and device.
        predicted_s, measured_s: seconds, alike long.
    """

    panel: tuple[str, str]
    source: str
    predicted_s: Sequence[float]
    measured_s: Sequence[float]


def draw(clouds: Sequence[Cloud], band: float) -> Figure:
    """One panel per device and phase: the ratio, which a diagonal over six decades would hide.

    Args:
        band: share of the measured time, the bar of the 95th percentile.
    """
    rows = list(dict.fromkeys(cloud.panel[0] for cloud in clouds))
    columns = list(dict.fromkeys(cloud.panel[1] for cloud in clouds))
    sources = list(dict.fromkeys(cloud.source for cloud in clouds))
    looks = dict(zip(sources, _LOOKS, strict=False))
    figure = Figure(figsize=(3.3 * len(columns) + 0.5, 3.1 * len(rows) + 1.1))
    grid: Any = figure.subplots(len(rows), len(columns), squeeze=False)
    for at, row in enumerate(rows):
        for place, column in enumerate(columns):
            here = [cloud for cloud in clouds if cloud.panel == (row, column)]
            _panel(grid[at][place], here, looks, band)
            grid[at][place].set_title(f"{column}, {row}", fontsize=9.5, loc="left")
        grid[at][0].set_ylabel("predicted ÷ measured")
    for axes in grid[-1]:
        axes.set_xlabel("measured")
    handles = [
        matplotlib.lines.Line2D([], [], linestyle="", color=colour, marker=marker, label=source)
        for source, (colour, marker) in looks.items()
    ]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.02, 0.955), ncols=4)
    figure.suptitle(
        f"GPU time, predicted against measured (band: ± {band:.0%})",
        x=0.025, y=0.985, ha="left", fontsize=11.5, fontweight="bold",
    )  # fmt: skip
    figure.subplots_adjust(
        left=0.085, right=0.985, bottom=0.085, top=0.86, wspace=0.28, hspace=0.32
    )
    return figure


def _panel(axes: Any, clouds: Sequence[Cloud], looks: dict[str, Any], band: float) -> None:
    axes.axhspan(1 - band, 1 + band, color=SHADE, linewidth=0, zorder=0)
    axes.axhline(1, color=INK, linewidth=0.9, zorder=1)
    for edge in (1 - band, 1 + band):
        axes.axhline(edge, color=MUTED, linewidth=0.7, linestyle=(0, (4, 2.5)), zorder=1)
    for cloud in clouds:
        colour, marker = looks[cloud.source]
        step = max(1, len(cloud.measured_s) // _MOST_POINTS)
        ratios = [p / m for p, m in zip(cloud.predicted_s, cloud.measured_s, strict=True)]
        axes.plot(
            cloud.measured_s[::step], ratios[::step], linestyle="", marker=marker,
            color=colour, markersize=2.8, markeredgewidth=0, alpha=0.55, zorder=2,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(*_RATIOS)
    axes.yaxis.set_major_locator(MultipleLocator(0.25))
    axes.xaxis.set_major_locator(LogLocator(numticks=5))
    axes.xaxis.set_major_formatter(FuncFormatter(_time))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _time(seconds: float, _: int) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.999 * scale:
            return f"{seconds / scale:g} {unit}"
    return f"{seconds * 1e9:g} ns"


def save_clouds(clouds: Sequence[Cloud], band: float, path: Path) -> None:
    """Draw into ``path``, PNG or SVG by its name.

    Raises:
        RunError, ConfigError: the file cannot be written.
    """
    with matplotlib.rc_context(RC):
        save(draw(clouds, band), path)
