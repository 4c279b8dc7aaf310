"""From which load on a line fetching is slower than computing, measured and on paper.

A fetch of W bytes over an empty line of rate R takes w = 8W/R on the wire. Others who hold a share
L of the line and do not yield leave it R·(1 − L), so TTFT(L) = F + w·L/(1 − L), where F is the TTFT
on the empty line. It passes the recomputed one, C, at

    L* = (C − F) / (C − F + w)

The formula knows no queue and no loss: a sender that backs off gets less than what is left, and has
to stop sooner. Where the load has a line of its own nothing is to be stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from geokv.measure.drill.cell import DrillCell
from geokv.measure.drill.compared import COMPUTED, FETCHED
from geokv.measure.lines import lines_along
from geokv.measure.statistics.ttft import Ttft
from geokv.scenario.cells import path_links
from geokv.scenario.sweep import Value
from geokv.scenario.timeline import Background
from geokv.units import NS_PER_S


@dataclass(frozen=True)
class Stop:
    """One line of cells that differ by the load alone.

    Attributes:
        settings: what they share.
        cells: their numbers, by rising load.
        loads: shares of the line's rate.
        ours: whether the load is on the path of the fetches.
        median, p99, slowest: the load at which the TTFT of fetching passes that of computing; None
            when it does not up to the highest, and of the p99 where too few requests carry one.
        p99_carried: whether that is a number of every cell.
        faster_again: loads above that of the median at which fetching is the faster all the same.
        formula: L*, where the load is on the path.
    """

    settings: dict[str, Value]
    cells: tuple[int, ...]
    loads: tuple[float, ...]
    ours: bool
    median: float | None
    p99: float | None
    slowest: float | None
    p99_carried: bool
    faster_again: tuple[float, ...]
    formula: float | None


def stops(cells: Sequence[DrillCell]) -> list[Stop]:
    """One per combination of the other settings; none where no single load is swept, or fetching
    is not compared with computing."""
    sound = [
        cell
        for cell in cells
        if not cell.is_control
        and not cell.void_because
        and {FETCHED, COMPUTED} <= cell.kinds.keys()
    ]
    titles = dict.fromkeys(title for cell in sound for title in cell.cell.settings)
    swept = [title for title in titles if _load(sound[0], title) is not None]
    if len(swept) != 1:
        return []
    return [_line(settings, line, swept[0]) for settings, line in lines_along(swept[0], sound)]


def _load(cell: DrillCell, title: str) -> Background | None:
    """The event whose share an axis is."""
    for event in cell.cell.scenario.timeline:
        if isinstance(event, Background) and title == f"timeline.{event.title}.share":
            return event
    return None


def _line(settings: dict[str, Value], line: list[DrillCell], title: str) -> Stop:
    def share(cell: DrillCell) -> float:
        event = _load(cell, title)
        assert event is not None, "it is what the line is along"
        return event.share

    line = sorted(line, key=share)
    loads = [share(cell) for cell in line]
    event, scenario = _load(line[0], title), line[0].cell.scenario
    assert event is not None
    stream = scenario.workload
    ours = event.link in path_links(scenario.topology, stream.provider, stream.asker)
    pairs = [(cell.kinds[FETCHED].ttft, cell.kinds[COMPUTED].ttft) for cell in line]
    medians = [_over(one.p50_ns, other.p50_ns) for one, other in pairs]
    median = crossing(loads, medians)
    return Stop(
        settings,
        tuple(cell.cell.index for cell in line),
        tuple(loads),
        ours,
        median,
        crossing(loads, [_over(one.p99_ns, other.p99_ns) for one, other in pairs]),
        crossing(loads, [_over(one.max_ns, other.max_ns) for one, other in pairs]),
        all(times.p99_ns is not None for pair in pairs for times in pair),
        faster_above(loads, medians, median),
        _formula(line[0], event.link, *pairs[0]) if ours and not loads[0] else None,
    )


def _over(fetched_ns: int | None, computed_ns: int | None) -> int | None:
    return None if fetched_ns is None or computed_ns is None else fetched_ns - computed_ns


def crossing(loads: Sequence[float], over: Sequence[int | None]) -> float | None:
    """The load at which fetching begins to take longer: between two samples on the line that TTFT
    is over 1/(1 − L).

    Args:
        loads: rising, below 1.
        over: TTFT of fetching less that of computing, ns; None where there is no number.

    Returns:
        The first load where it takes longer there already; None where it never does.
    """
    points = [(load, gap) for load, gap in zip(loads, over, strict=True) if gap is not None]
    if points and points[0][1] > 0:
        return points[0][0]
    for (load, gap), (next_load, next_gap) in pairwise(points):
        if next_gap > 0:
            if next_load >= 1:
                return load
            first, second = 1 / (1 - load), 1 / (1 - next_load)
            return 1 - 1 / (first + (second - first) * -gap / (next_gap - gap))
    return None


def faster_above(
    loads: Sequence[float], over: Sequence[int | None], stop: float | None
) -> tuple[float, ...]:
    """Loads above ``stop`` at which fetching does not take longer; arguments as of ``crossing``."""
    return tuple(
        load
        for load, gap in zip(loads, over, strict=True)
        if stop is not None and load > stop and gap is not None and gap <= 0
    )


def formula(computed_ns: int, fetched_ns: int, wire_ns: float) -> float | None:
    """L*; None where fetching does not pay on the empty line."""
    gain_ns = computed_ns - fetched_ns
    return gain_ns / (gain_ns + wire_ns) if gain_ns > 0 else None


def _formula(empty: DrillCell, link: str, fetched: Ttft, computed: Ttft) -> float | None:
    rate_bps = empty.goodput_asked_bps.get(link)
    if not rate_bps or fetched.p50_ns is None or computed.p50_ns is None:
        return None
    moved = sorted(
        int(one.answers[0]["wire_bytes"])
        for one, _ in empty.fates.by_request
        if one.ok and one.chunks_remote and one.request.get("probe") == FETCHED
    )
    if not moved:
        return None
    wire_ns = moved[len(moved) // 2] * 8 * NS_PER_S / rate_bps
    return formula(computed.p50_ns, fetched.p50_ns, wire_ns)
