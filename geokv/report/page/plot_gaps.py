"""Two pictures of the gaps: what a tail is made of, and what LRU caches would have had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from geokv.report.style import GRID, INK, MUTED, SERIES, SERIES_MARKERS, SPAN_COLOURS, stacked

_MOST_PAIRS = 6
_SHOWN = 0.004
"""Of the longest bar: shorter parts could not be seen."""
_GIB = 2**30


def draw_attribution(gaps: dict[str, Any], cells: Sequence[dict[str, Any]] = ()) -> Figure | None:
    """A bar for the median request and one for the tail of each group of one cell, or of the
    first cells of a drill; None without a first token anywhere.

    Args:
        cells: of the summary; what is out of range or a control is drawn only where there is
            nothing else.
    """
    rows = _chosen(_meant(gaps["mg6"]["groups"], cells))
    if not rows:
        return None
    bars = []
    for row in rows:
        tail = row["worst"] if row["worst"]["n"] else row["slowest"]
        name = f"worst {row['worst']['n']}" if row["worst"]["n"] else "slowest"
        bars += [(row, "median", row["p50"]["spans_ms"]), (row, name, tail["spans_ms"])]
    longest = max(sum(spans.values()) for _, _, spans in bars)
    seen = [
        span
        for span in SPAN_COLOURS
        if any(spans[span] >= _SHOWN * longest for _, _, spans in bars)
    ]
    inches = 1.11 + 0.62 * len(rows)
    figure = Figure(figsize=(7.4, inches))
    axes = figure.add_axes((0.2, 0.66 / inches, 0.77, 0.62 * len(rows) / inches))
    for number, (row, name, spans) in enumerate(bars):
        y = -(number // 2) - 0.36 * (number % 2)
        left = 0.0
        for span in seen:
            # A label that begins with an underline has no place in the legend.
            label = span.replace("_", " ") if number == 0 else "_"
            fill = stacked(span, SPAN_COLOURS)
            axes.barh(y, spans[span], left=left, height=0.31, label=label, **fill)
            left += spans[span]
        axes.text(left + 0.008 * longest, y, name, va="center", fontsize=8, color=MUTED)
        if not number % 2:
            axes.text(
                -0.015 * longest, y - 0.18, _named(row, rows), ha="right", va="center", fontsize=9,
                color=INK,
            )  # fmt: skip
    axes.set_xlim(0, 1.12 * longest)
    axes.set_yticks([])
    axes.grid(axis="x", color=GRID)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"time to first token, ms\n{_whose(rows)}")
    figure.legend(
        loc="upper left", bbox_to_anchor=(0.19, 0.995), ncols=len(seen), handlelength=1.0,
        handleheight=1.0, columnspacing=1.2, fontsize=9,
    )  # fmt: skip
    return figure


def _meant(rows: list[dict[str, Any]], cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    aside = {one["cell"] for one in cells if one.get("out_of_range") or one.get("control")}
    return [row for row in rows if row["cell"] not in aside] or rows


def _whose(rows: list[dict[str, Any]]) -> str:
    """Which cell a figure is of; of several their bars have their names."""
    labels = dict.fromkeys(str(row["label"]) for row in rows)
    return f"cell: {next(iter(labels))}" if len(labels) == 1 else ""


def _chosen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a measurement run the arms of its last cell, of a drill its cells."""
    if rows and rows[0]["group"] != "all":
        return [row for row in rows if row["cell"] == rows[-1]["cell"]][:_MOST_PAIRS]
    return rows[:_MOST_PAIRS]


def _named(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    if row["group"] != "all":
        return str(row["group"]).replace("-", " ")
    return "" if len(rows) == 1 else str(row["label"])


def draw_lru(gaps: dict[str, Any], cells: Sequence[dict[str, Any]] = ()) -> Figure | None:
    """Hits against the size of an LRU cache, of the group that touched most; None where nothing
    was touched twice. ``cells`` as of ``draw_attribution``."""
    rows = _meant([row for row in gaps["mg4"]["groups"] if row["lru"] is not None], cells)
    if not rows:
        return None
    row = max(rows, key=lambda row: sum(one["chunks"] for one in row["by"]))
    lru = row["lru"]
    if not any(lru["anywhere"]):
        return None
    # A run that does not say how large its KV is has its axis in chunks.
    chunk_gib = row["chunk_bytes_stands_for"] / _GIB or 1
    unit = "GiB of KV (chunks of" if row["chunk_bytes_stands_for"] else "chunks (of"
    sizes = [count * chunk_gib for count in lru["chunks"]]
    figure = Figure(figsize=(7.4, 3.25))
    axes = figure.add_axes((0.1, 0.21, 0.86, 0.65))
    for number, (name, said) in enumerate(
        (("here", "one cache at each site"), ("anywhere", "one for all sites"))
    ):
        axes.plot(
            sizes, lru[name], color=SERIES[number], marker=SERIES_MARKERS[number], markersize=4.5,
            drawstyle="steps-post", linestyle="-" if number == 0 else "--", label=said,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    group = "" if row["group"] == "all" else f", {str(row['group']).replace('-', ' ')}"
    axes.set_xlabel(
        f"size of an LRU cache, {unit} {row['chunk_tokens']} tokens)\n{_whose([row])}{group}"
    )
    axes.set_ylabel("chunks it would have had")
    figure.legend(loc="upper left", bbox_to_anchor=(0.09, 0.99), ncols=2, fontsize=9)
    return figure
