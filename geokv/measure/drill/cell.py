"""One cell of a drill, reduced: judged lines, faults with their recovery, fates, times."""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.checker import check_all
from geokv.measure.checker.exchanges import ttfts_of
from geokv.measure.checker.finding import Finding
from geokv.measure.checker.history import History
from geokv.measure.drill.by_hand import commands, judged_by_hand
from geokv.measure.drill.compared import ANSWERED, FETCHED, During, Kind, by_kind, during
from geokv.measure.drill.fates import Fates, fates
from geokv.measure.drill.faults import FaultSeen, faults_seen
from geokv.measure.drill.machine import KeptUp, kept_up
from geokv.measure.drill.promises import judge_drill, judge_events, misses_by_cause
from geokv.measure.drill.recovery import Recovery, recoveries
from geokv.measure.drill.sites import SiteTimes, by_site
from geokv.measure.drill.soundness import examine
from geokv.measure.records import Wait
from geokv.measure.statistics.intervals import Stream
from geokv.measure.statistics.ttft import Ttft, reduce_ttft
from geokv.scenario.sweep import Cell


@dataclass(frozen=True)
class DrillCell:
    """What became of one cell of a drill, from its history."""

    cell: Cell
    recorded: bool
    """The run got as far as the end of this cell."""
    lines: list[Finding]
    faults: list[FaultSeen]
    recoveries: list[Recovery]
    fates: Fates
    misses: dict[str, int]
    ttft: Ttft
    """Of all that were answered."""
    kinds: dict[str, Kind]
    """Where the stream compares kinds of requests."""
    outages: dict[str, During]
    """Fault → what was asked while it lasted, where it began within the stream."""
    sites: list[SiteTimes]
    """Where a fault was seen."""
    goodput_asked_bps: dict[str, int]
    """Link → its payload rate by the plan."""
    commands: list[str]
    """What was done by hand while it ran."""
    machine: KeptUp

    @property
    def link_problems(self) -> list[str]:
        """Links that were off their plan (INV-7)."""
        return [line.said for line in self.lines if line.name == "links" and line.ok is False]

    @property
    def valid(self) -> bool:
        """It ran to its end, over links that kept to their plan, on a machine that kept up."""
        return self.recorded and not self.void_because

    @property
    def ttfts(self) -> dict[str, list[Ttft]]:
        """Kind of request → its times; of all together where a stream tells none apart."""
        apart = {name: [kind.ttft] for name, kind in self.kinds.items()}
        return apart or {ANSWERED: [self.ttft]}

    @property
    def against(self) -> list[tuple[str, str]]:
        """What is cached with each other kind."""
        others = (kind for kind in self.kinds if kind != FETCHED)
        return [(FETCHED, kind) for kind in others] if FETCHED in self.kinds else []

    @property
    def void_because(self) -> list[str]:
        """Why no number of this cell counts; empty when it does."""
        # A link that is off on a machine that did not keep up is off for that reason.
        return [*self.machine.problems, *self.link_problems]

    @property
    def is_control(self) -> bool:
        """Whether it is the cell that must fail."""
        return self.cell.control is not None


def reduce_drill_cell(cell: Cell, history: History | None, wait: Wait | None = None) -> DrillCell:
    """Everything that a cell's history says.

    Args:
        history: None when the run did not get that far.
        wait: what the host counted, of a cell in real time.
    """
    history = history or History([], cell.index)
    scenario = cell.scenario
    found = fates(history)
    faults = faults_seen(history)
    recovered = recoveries(history, found, faults)
    sites = by_site(found, faults)
    lines = [
        *check_all(history),
        *examine(history, [*(event.title for event in scenario.timeline), *judged_by_hand(faults)]),
        *judge_events(scenario.timeline, recovered),
        *judge_drill(scenario.expect.drill, history, found, sites),
    ]
    recorded = history.end_ns is not None
    misses = dict(misses_by_cause(history))
    asked = {str(event["link"]): event.get("goodput_asked_bps") for event in history.of("links")}
    rows = [one for one, _ in found.by_request]
    stream = Stream(scenario.seed, (f"cell {cell.index}",))
    outages = {fault.name: during(found, fault) for fault in faults}
    return DrillCell(
        cell,
        recorded,
        lines,
        faults,
        recovered,
        found,
        misses,
        reduce_ttft(ttfts_of(rows), stream.of(ANSWERED)),
        by_kind(rows, stream),
        {name: one for name, one in outages.items() if one is not None},
        sites,
        {link: int(rate) for link, rate in asked.items() if rate},
        commands(history),
        kept_up(history, wait),
    )
