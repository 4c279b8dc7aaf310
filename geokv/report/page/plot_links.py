"""Every check of every link as its distance from the plan, with what the checks allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from geokv.lab.check import TOLERANCES, Tolerance
from geokv.report.plot_panels import about, wrapped
from geokv.report.style import GRID, INK, MUTED, SERIES, SERIES_MARKERS

_MOST_TICKS = 9
_BROKEN = "#b3262d"


@dataclass(frozen=True)
class Check:
    """One check of one link. ``place`` counts cells; a time is None when nothing came back."""

    place: int
    cell: str
    link: str
    phase: str
    ok: bool
    rtt_expected_ns: int
    rtt_measured_ns: int | None
    goodput_asked_bps: float | None
    goodput_measured_bps: float | None


def draw(summary: dict[str, Any], checks: Sequence[Check], title: str) -> Figure | None:
    """Left the round trip, right the goodput; None without a check."""
    if not checks:
        return None
    links = list(dict.fromkeys(check.link for check in checks))
    cells = list(dict.fromkeys((check.place, check.cell) for check in checks))
    tolerance = TOLERANCES["wall" if summary["ran"]["clock"] == "wall" else "virtual"]
    figure = Figure(figsize=(8.6, 3.9))
    left, right = figure.subplots(
        1, 2, gridspec_kw={"left": 0.085, "right": 0.985, "bottom": 0.155, "top": 0.70,
                           "wspace": 0.22},
    )  # fmt: skip
    _allowed(left, right, checks, tolerance)
    for check in checks:
        number = links.index(check.link)
        _mark(left, check, number, len(links), _off_us(check))
        _mark(right, check, number, len(links), _share(check))
    step = -(-len(cells) // _MOST_TICKS)
    for axes in (left, right):
        axes.set_xticks([place for place, _ in cells][::step], [name for _, name in cells][::step])
        axes.set_xlim(cells[0][0] - 0.6, cells[-1][0] + 0.6)
        axes.grid(axis="x", visible=False)
        axes.set_xlabel(_along(summary))
    _zoom(left, right, checks, tolerance)
    left.set_ylabel("RTT, measured − planned, µs")
    right.set_ylabel("goodput, % of the plan")
    figure.text(0.085, 0.93, title, fontsize=13, fontweight="bold", va="center")
    figure.text(0.085, 0.866, wrapped(about(summary)), fontsize=8, color=MUTED, va="center")
    _legend(figure, links, checks)
    return figure


def _allowed(left: Any, right: Any, checks: Sequence[Check], tolerance: Tolerance) -> None:
    """What a check lets pass, as a band behind the marks; of the narrowest in each cell."""
    for place in dict.fromkeys(check.place for check in checks):
        here = [check for check in checks if check.place == place]
        allowed_us = min(_allowed_us(check, tolerance) for check in here)
        for axes, low, high in (
            (left, -allowed_us, allowed_us),
            (right, 100 * tolerance.goodput_floor, 100 * tolerance.goodput_ceiling),
        ):
            axes.bar(
                [place], [high - low], bottom=[low], width=1.0, color=GRID, zorder=0, linewidth=0
            )
    left.axhline(0, color=INK, linewidth=0.8, zorder=1)
    right.axhline(100, color=INK, linewidth=0.8, zorder=1)


def _zoom(left: Any, right: Any, checks: Sequence[Check], tolerance: Tolerance) -> None:
    """As near as shows every mark and the narrowest band; a longer link's band may go beyond."""
    narrow_us = min(_allowed_us(check, tolerance) for check in checks)
    far_us = max((abs(_off_us(check) or 0.0) for check in checks), default=0.0)
    reach = 1.25 * max(narrow_us, far_us)
    left.set_ylim(-reach, reach)
    shares = [share for check in checks if (share := _share(check)) is not None]
    low, high = 100 * tolerance.goodput_floor, 100 * tolerance.goodput_ceiling
    right.set_ylim(min([low, *shares]) - 0.6, max([high, *shares]) + 0.6)


def _allowed_us(check: Check, tolerance: Tolerance) -> float:
    return max(tolerance.rtt_share * check.rtt_expected_ns, tolerance.rtt_floor_ns) / 1e3


def _mark(axes: Any, check: Check, number: int, links: int, value: float | None) -> None:
    """Links and phases stand side by side within their cell."""
    if value is None:
        return
    shift = 0.0 if links == 1 else 0.6 * (number / (links - 1) - 0.5)
    x = check.place + shift + (0.08 if check.phase == "after" else -0.08)
    colour = SERIES[number % len(SERIES)] if check.ok else _BROKEN
    axes.plot(
        [x], [value], marker=SERIES_MARKERS[number % len(SERIES)] if check.ok else "x",
        markersize=6, color=colour, markeredgewidth=1.4, zorder=3, linestyle="none",
        markerfacecolor="white" if check.phase == "after" else colour,
    )  # fmt: skip


def _legend(figure: Figure, links: list[str], checks: Sequence[Check]) -> None:
    handles: list[Any] = []
    names: list[str] = []
    for number, link in enumerate(links[: len(SERIES)]):
        handles.append(
            Line2D([], [], color=SERIES[number], marker=SERIES_MARKERS[number], linestyle="none")
        )
        names.append(link)
    handles.append(Line2D([], [], color=MUTED, marker="o", linestyle="none"))
    handles.append(
        Line2D([], [], color=MUTED, marker="o", linestyle="none", markerfacecolor="white")
    )
    handles.append(Line2D([], [], color=GRID, linewidth=8))
    names += ["before the cell", "after it", "allowed"]
    if any(not check.ok for check in checks):
        handles.append(Line2D([], [], color=_BROKEN, marker="x", linestyle="none"))
        names.append("out of tolerance")
    figure.legend(
        handles, names, loc="upper left", bbox_to_anchor=(0.075, 0.83), ncols=len(names),
        handlelength=1.2, columnspacing=1.5, fontsize=9,
    )  # fmt: skip


def _along(summary: dict[str, Any]) -> str:
    swept = summary["ran"]["swept"]
    if summary.get("kind") == "drill" and not swept:
        return "cell"
    return "km" if len(swept) == 1 and swept[0].endswith(".km") else "cell"


def _off_us(check: Check) -> float | None:
    if check.rtt_measured_ns is None:
        return None
    return (check.rtt_measured_ns - check.rtt_expected_ns) / 1e3


def _share(check: Check) -> float | None:
    if check.goodput_measured_bps is None or not check.goodput_asked_bps:
        return None
    return 100 * check.goodput_measured_bps / check.goodput_asked_bps
