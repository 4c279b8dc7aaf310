"""Which constants of the energy proxy matter: each from low to high, the others at their value."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geokv.report.plot_panels import about, wrapped
from geokv.report.style import INK, MUTED

_LOW, _HIGH = "#2459b5", "#e2b04a"
"""Apart in lightness too, so that grey print and any eye tell them from each other."""
_ROW_INCH, _TOP_INCH, _BOTTOM_INCH, _WIDE_INCH = 0.42, 1.25, 0.6, 8.6


def draw(summary: dict[str, Any]) -> Figure | None:
    """The figure; None where no request was measured or no constant has a range."""
    tornado = summary.get("energy", {}).get("tornado")
    if not tornado or not tornado["bars"]:
        return None
    bars = tornado["bars"][::-1]
    high = _TOP_INCH + _BOTTOM_INCH + _ROW_INCH * len(bars)
    figure = Figure(figsize=(_WIDE_INCH, high))
    axes: Any = figure.add_axes(
        (0.235, _BOTTOM_INCH / high, 0.735, 1 - (_TOP_INCH + _BOTTOM_INCH) / high)
    )
    centre = tornado["value"]
    ends = [end for bar in bars for end in (bar["at_low"], bar["at_high"])]
    room = 0.13 * (max(ends) - min(ends))
    for row, bar in enumerate(bars):
        for end, colour, hatch in (("low", _LOW, ""), ("high", _HIGH, "////")):
            reached = bar[f"at_{end}"]
            axes.barh(
                row, reached - centre, left=centre, height=0.62, color=colour, hatch=hatch,
                edgecolor="white", linewidth=0, zorder=3,
            )  # fmt: skip
            if reached != centre:
                left = reached < centre
                axes.annotate(
                    f"{bar[end]:g}", (reached, row), xytext=(-4 if left else 4, 0),
                    textcoords="offset points", ha="right" if left else "left", va="center",
                    fontsize=8, color=INK,
                )  # fmt: skip
    axes.axvline(centre, color=INK, linewidth=1.0, zorder=4)
    axes.set_yticks(range(len(bars)), [f"{_title(bar['constant'])}" for bar in bars])
    axes.set_xlim(min([*ends, centre]) - room, max([*ends, centre]) + room)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{tornado['of']}, {tornado['label']}")
    figure.legend(
        [Patch(color=_LOW), Patch(facecolor=_HIGH, hatch="////", edgecolor="white"),
         Line2D([], [], color=INK)],
        ["low end of its range", "high end", f"all at their value: {centre:,.1f} J"],
        loc="upper left", bbox_to_anchor=(0.228, 1 - 0.8 / high), ncols=3, fontsize=9,
        handlelength=1.4,
    )  # fmt: skip
    figure.text(
        0.028, 1 - 0.28 / high, "Which constants of the energy proxy matter", fontsize=13,
        fontweight="bold", va="center",
    )  # fmt: skip
    figure.text(0.028, 1 - 0.47 / high, wrapped(about(summary)), fontsize=8, color=MUTED, va="top")
    return figure


_TITLES = {
    "idle_w": "GPU idle, W",
    "prefill_w": "GPU in prefill, W",
    "decode_w": "GPU in decode, W",
    "end_w": "optics, W an end",
    "transfer_pj_per_bit": "moving, pJ/bit",
    "switch_w": "switch port, W an end",
    "host_w": "host, W a GPU",
    "core_w": "hardware thread, W",
    "pue": "PUE",
    "carbon_intensity_g_per_kwh": "carbon, g/kWh",
}


def _title(constant: str) -> str:
    return _TITLES.get(constant, constant)
