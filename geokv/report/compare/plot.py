"""Ratios with their intervals, a line per cell and arm: what lies across 1 is no difference."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from geokv.measure.comparing.pairs import Pair
from geokv.report.compare.comparison import Against
from geokv.report.style import INK, MUTED, SERIES

_ROW_INCH = 0.24
_MOST = 120
"""More lines make no picture."""
_LEAST = 0.01
"""To either side of 1 that is always shown: below it the axis would have one number many times."""
_COLOURS = {"slower": SERIES[2], "faster": SERIES[0]}
_MARKERS = {"slower": "s", "faster": "o"}


def draw(one: Against) -> Figure | None:
    """None where no pair has a ratio, or too many have."""
    pairs = [pair for pair in one.pairs if pair.ratio is not None]
    if not pairs or len(pairs) > _MOST:
        return None
    figure = Figure(figsize=(8.6, 1.25 + _ROW_INCH * len(pairs)))
    top = 0.5 / figure.get_figheight()
    axes = figure.add_axes(
        (0.34, 0.55 / figure.get_figheight(), 0.6, 1 - top - 0.55 / figure.get_figheight())
    )
    for place, pair in enumerate(pairs):
        _line(axes, place, pair)
    axes.axvline(1, color=INK, linewidth=0.9, zorder=1)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.set_yticks(range(len(pairs)), [f"{pair.label}, {pair.arm}" for pair in pairs], fontsize=8)
    axes.grid(axis="y", visible=False)
    ends = [end for pair in pairs for end in (pair.ratio, pair.low, pair.high) if end is not None]
    if max(ends) / min(ends) > 3:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    low, high = min(*ends, 1 - _LEAST), max(*ends, 1 + _LEAST)
    margin = 0.06 * max(high - 1, 1 - low)
    axes.set_xlim(low - margin, high + margin)
    axes.set_xlabel("TTFT of this run over the base's, with the 95 % interval")
    for outcome, said in (
        ("slower", "slower"),
        ("faster", "faster"),
        ("", "not significant, or too few to say"),
    ):
        axes.plot(
            [], [], color=_COLOURS.get(outcome, MUTED), marker=_MARKERS.get(outcome, "D"),
            linewidth=1.4, markersize=5, label=said,
        )  # fmt: skip
    figure.legend(loc="upper left", bbox_to_anchor=(0.33, 1), ncols=3, fontsize=8.5)
    return figure


def _line(axes: object, place: int, pair: Pair) -> None:
    colour = _COLOURS.get(pair.outcome, MUTED)
    marker = _MARKERS.get(pair.outcome, "D")
    if pair.low is not None and pair.high is not None:
        axes.plot([pair.low, pair.high], [place, place], color=colour, linewidth=1.4, zorder=2)  # type: ignore[attr-defined]
    axes.plot([pair.ratio], [place], color=colour, marker=marker, markersize=5, zorder=3)  # type: ignore[attr-defined]
