"""One cell: its links, its arms, and the numbers that compare them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from geokv.measure.answers import Comparison, compare
from geokv.measure.arm import ArmResult, reduce_arm
from geokv.measure.bound import lower_bound_ns
from geokv.measure.controls import ControlResult, compare_controls
from geokv.measure.energy import Constants
from geokv.measure.fetching import Fetching, reduce_fetching
from geokv.measure.gain import change_percent, change_points, gain
from geokv.measure.hits import Hits, reduce_hits
from geokv.measure.machine import cpu_bound
from geokv.measure.records import CellRecord, LinkRecord, PathRecord, Request, Timers, Wait
from geokv.measure.statistics.intervals import Stream
from geokv.scenario.cells import path_links
from geokv.scenario.model import Scenario
from geokv.scenario.sweep import Cell
from geokv.scenario.workload import WorkingSet


@dataclass(frozen=True)
class CellResult:
    """Exact numbers of one cell. Comparisons are None where they cannot be made, and in
    a cell whose links were off their plan (INV-7: never a number)."""

    cell: Cell
    recorded: bool
    rtt_asked_ns: int | None
    rtt_measured_ns: int | None
    goodput_ratio: float | None
    link_problems: list[str]
    late_problems: list[str]
    """Sites whose computing outlasted what was charged for it, and other signs of a machine that
    did not keep up (real time only)."""
    integrity_problems: list[str]
    arms: dict[str, ArmResult]
    answers: Comparison
    controls: list[ControlResult]
    planted: dict[str, str]
    """Control arm → what the asker's integrity check said of what had been planted."""
    fetching: dict[str, Fetching]
    """Of the arms that fetched anything; empty in a cell whose links were off."""
    hits: dict[str, Hits]
    """By arm; which tiers served its prompts."""
    path: PathRecord | None
    """Between provider and asker, as planned."""
    bound_ns: int | None
    ratio_to_bound: float | None
    gain: float | None
    gain_change_percent: float | None = None
    gain_change_points: float | None = None
    timers: Timers | None = None
    wait: Wait | None = None

    @property
    def valid(self) -> bool:
        """Links kept to their plan before and after, and charges were kept."""
        return self.recorded and not self.void_because

    @property
    def void_because(self) -> list[str]:
        """Why no number of this cell counts; empty when it does."""
        # A link that is off on a machine that did not keep up is off for that reason.
        return [*self.late_problems, *self.link_problems]


def reduce_cell(
    cell: Cell,
    record: CellRecord | None,
    requests: list[Request],
    numbers: Constants,
    wait: Wait | None = None,
) -> CellResult:
    """Reduce the records of one cell.

    Args:
        record: None when the run did not get that far.
        requests: those of this cell, of all arms, warm-ups included.
        wait: what the host counted, of a cell in real time.
    """
    scenario = cell.scenario
    on_path = path_links(cell.topology, scenario.workload.provider, scenario.workload.asker)
    keeps = isinstance(scenario.workload, WorkingSet)
    deployment, asked = scenario.deployment, scenario.workload.requests
    chunk_tokens = deployment.at(scenario.workload.asker).chunk_tokens
    measured: dict[str, list[Request]] = {
        arm: [row for row in requests if row.arm == arm and not row.warmup] for arm in scenario.arms
    }
    stream = Stream(scenario.seed, (f"cell {cell.index}",))
    arms = {
        arm: reduce_arm(
            arm, rows, asked, numbers, len(on_path), deployment.byte_scale, keeps, stream
        )
        for arm, rows in measured.items()
    }
    problems = _link_problems(record.links, list(cell.topology.links)) if record else []
    timers = record.timers if record else None
    late = cpu_bound(timers, wait, record.late_ns if record else {}, deployment.compute)
    valid = record is not None and not problems and not late
    # What a request of a working set needs is another thing each time.
    bound_ns = None if keeps else _bound(record, arms)
    remote = arms.get("remote-hit")
    remote_ns = remote.p50_ns if remote else None
    recompute = arms.get("recompute")
    recompute_ns = recompute.p50_ns if recompute else None
    return CellResult(
        cell=cell,
        recorded=record is not None,
        rtt_asked_ns=record.path.rtt_ns if record else None,
        rtt_measured_ns=_rtt(record.links, on_path) if record else None,
        goodput_ratio=_goodput(record.links, on_path) if record else None,
        link_problems=problems,
        late_problems=late,
        timers=timers,
        wait=wait,
        integrity_problems=[
            f"{cell.label}: site {site}: {said}"
            for site, said in sorted(record.integrity.items())
            if said != "ok"
        ]
        if record
        else [],
        arms=arms,
        answers=compare(requests),
        controls=compare_controls(requests),
        planted=dict(record.planted) if record else {},
        hits={arm: reduce_hits(rows, chunk_tokens) for arm, rows in measured.items()},
        path=record.path if record else None,
        fetching=_fetching(scenario, measured, record.path) if record and valid else {},
        bound_ns=bound_ns,
        ratio_to_bound=remote_ns / bound_ns if valid and remote_ns and bound_ns else None,
        gain=gain(remote_ns, recompute_ns) if valid and remote_ns and recompute_ns else None,
    )


def with_changes(cells: list[CellResult]) -> list[CellResult]:
    """Add each cell's change of gain against the cell at 0 km with the same other settings."""
    zero = {
        _others(result): result.gain
        for result in cells
        if result.cell.km == 0 and result.gain is not None and not result.cell.out_of_range
    }
    changed = []
    for result in cells:
        base = zero.get(_others(result))
        if base is not None and result.gain is not None:
            result = replace(
                result,
                gain_change_percent=change_percent(result.gain, base),
                gain_change_points=change_points(result.gain, base),
            )
        changed.append(result)
    return changed


def _others(result: CellResult) -> tuple[tuple[str, str], ...]:
    """The cell's settings apart from distances."""
    return tuple(
        sorted(
            (path, repr(value))
            for path, value in result.cell.settings.items()
            if not path.endswith(".km")
        )
    )


def _fetching(
    scenario: Scenario, measured: dict[str, list[Request]], path: PathRecord
) -> dict[str, Fetching]:
    found = {arm: reduce_fetching(scenario, rows, path) for arm, rows in measured.items()}
    return {arm: one for arm, one in found.items() if one is not None}


def _bound(record: CellRecord | None, arms: dict[str, ArmResult]) -> int | None:
    remote, local = arms.get("remote-hit"), arms.get("local-hit")
    if record is None or remote is None or local is None or not remote.fetched:
        return None
    if "prefill" not in local.spans_ns:
        return None
    path = record.path
    return lower_bound_ns(path.rtt_ns, remote.wire_bytes, path.rate_bps, local.spans_ns["prefill"])


def _link_problems(checks: list[LinkRecord], links: list[str]) -> list[str]:
    problems = []
    done = {(check.link, check.phase) for check in checks}
    for link in links:
        for phase in ("before", "after"):
            if (link, phase) not in done:
                problems.append(f"link {link} was not checked {phase} the cell")
    for check in checks:
        if not check.ok:
            said = "; ".join(check.problems) or "out of tolerance"
            problems.append(f"link {check.link}, {check.phase} the cell: {said}")
    return problems


def _rtt(checks: list[LinkRecord], on_path: list[str]) -> int | None:
    """Sum over the path of each link's mean of before and after."""
    total = 0
    for link in on_path:
        seen = [
            check.rtt_measured_ns
            for check in checks
            if check.link == link and check.rtt_measured_ns is not None
        ]
        if not seen:
            return None
        total += (sum(seen) + len(seen) // 2) // len(seen)
    return total


def _goodput(checks: list[LinkRecord], on_path: list[str]) -> float | None:
    """The worst of measured over asked, of all links of the path, before and after."""
    ratios = [
        check.goodput_measured_bps / check.goodput_asked_bps
        for check in checks
        if check.link in on_path
        and check.goodput_measured_bps is not None
        and check.goodput_asked_bps > 0
    ]
    return min(ratios) if ratios else None
