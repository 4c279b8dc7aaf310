"""One look for every figure: quiet axes, fixed colours, and nothing that dates a file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from geokv.report.disk import saving

INK = "#1f2430"
MUTED = "#5f6679"
GRID = "#e6e8ee"
SHADE = "#f6f7fa"
ARM_COLOURS = {"recompute": "#c2571a", "local_hit": "#2a7f62", "remote_hit": "#2459b5"}
ARM_MARKERS = {"recompute": "s", "local_hit": "^", "remote_hit": "o"}
SPAN_COLOURS = {
    "queue": "#b9bfcc",
    "lookup": "#8e6bb8",
    "fetch": "#2459b5",
    "completion": "#7fa8e0",
    "load": "#57b0a4",
    "prefill": "#c2571a",
    "first_byte": "#e2b04a",
}

SERIES = ("#2459b5", "#2a7f62", "#c2571a", "#8e6bb8", "#b58a1f", "#5b6478")
"""Of lines that stand for values of an axis."""
SERIES_MARKERS = ("o", "^", "s", "D", "v", "X")
TIER_COLOURS = {
    "device": "#2a7f62",
    "dram": "#57b0a4",
    "disk": "#e2b04a",
    "remote": "#2459b5",
    "computed": "#c2571a",
}
PART_COLOURS = {
    "gpu_idle": "#b9bfcc",
    "gpu_prefill": "#c2571a",
    "gpu_decode": "#e2b04a",
    "host": "#7fa8e0",
    "optics": "#2459b5",
    "switch": "#57b0a4",
    "transfer": "#2a7f62",
    "overhead": "#e6e0f4",
}
HATCHES = {
    "lookup": "xxxx", "completion": "////", "load": "\\\\\\\\", "first_byte": "||||",
    "dram": "////", "disk": "||||", "computed": "xxxx",
    "gpu_decode": "||||", "host": "////", "switch": "\\\\\\\\", "transfer": "xxxx",
    "overhead": "---",
}  # fmt: skip
"""Of what lies in one stack, everything that an eye without red, green or blue could take for
another colour; what is not named is plain."""
HEAT: Any = LinearSegmentedColormap.from_list("geokv", ["#2459b5", "#f7f7f5", "#c2571a"])
"""Blue is less, orange is more."""

RC: dict[str, Any] = {
    # The hash salt fixes the ids inside an SVG: equal runs draw equal bytes.
    "svg.hashsalt": "geokv",
    # Text stays text: it can be selected, searched and read aloud, and takes a page's colours.
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    # Titles, sites and labels are a user's: "$5 per site" is no formula, and an unfinished one ends
    # the report.
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
_DPI = 160
METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def stacked(name: str, colours: dict[str, str]) -> dict[str, Any]:
    """How a part of a stacked bar is filled, for ``bar``, ``barh`` and ``Patch``."""
    return {
        "facecolor": colours[name],
        "edgecolor": "white",
        "linewidth": 0.5,
        "hatch": HATCHES.get(name, ""),
    }


def save(figure: Figure, path: Path) -> None:
    """Write it, PNG if that is the file's name and else SVG; whole or not at all.

    Raises:
        RunError, ConfigError: the file cannot be written.
    """
    kind = "png" if path.suffix == ".png" else "svg"
    # Drawn to its end before anything is written.
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, dpi=_DPI, metadata=METADATA[kind])
    with saving(path):
        path.write_bytes(drawn.getvalue())
