"""One point of a sweep that was run with several seeds, as one result.

The seed is the unit of replication: requests of one seed share its prompts, its weights and its
losses, so that there being many of them makes a number no surer. Every number is therefore the mean
over the seeds of what each seed came to, and every interval is Student's over those (Georges and
others, "Statistically rigorous Java performance evaluation", OOPSLA 2007, §3.2.2). Counts are sums,
the worst of a kind stays the worst, and the point is void where a seed's cell is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from geokv.measure.answers import Comparison
from geokv.measure.arm import ArmResult
from geokv.measure.cell import CellResult
from geokv.measure.controls import ControlResult
from geokv.measure.energy import Joules
from geokv.measure.fetching import Fetching
from geokv.measure.hits import Hits
from geokv.measure.percentile import Interval
from geokv.measure.statistics.carried import CONFIDENCE
from geokv.measure.statistics.student import of_mean
from geokv.measure.statistics.ttft import Ttft
from geokv.scenario.seeds import AXIS
from geokv.scenario.sweep import Cell, label

REMOTE = "remote-hit"


@dataclass(frozen=True)
class Point:
    """One point of the sweep: as it is reported, and the cell of each seed behind it."""

    result: CellResult
    by_seed: tuple[CellResult, ...]

    @property
    def cell(self) -> Cell:
        """As it is reported: of the first seed."""
        return self.result.cell

    @property
    def valid(self) -> bool:
        """Whether its numbers count (INV-7)."""
        return self.result.valid

    @property
    def ttfts(self) -> dict[str, list[Ttft]]:
        """Arm → its times, of each seed."""
        return {
            arm: [one.arms[arm].ttft for one in self.by_seed if arm in one.arms]
            for arm in self.result.arms
        }

    @property
    def against(self) -> list[tuple[str, str]]:
        """A remote hit with each other arm that is no control."""
        arms = self.result.arms
        others = (arm for arm in arms if arm != REMOTE and not arm.startswith("control-"))
        return [(REMOTE, arm) for arm in others] if REMOTE in arms else []


def points(results: Sequence[CellResult]) -> list[Point]:
    """One per combination of settings but the seed, in the order of the first seed."""
    groups: dict[tuple[tuple[str, object], ...], list[CellResult]] = defaultdict(list)
    for result in results:
        settings = result.cell.settings.items()
        groups[tuple((name, value) for name, value in settings if name != AXIS)].append(result)
    return [Point(merged(group), tuple(group)) for group in groups.values()]


def merged(group: Sequence[CellResult]) -> CellResult:
    """The cells of all seeds at one point; a single one stays as it is."""
    first = group[0]
    if len(group) == 1:
        return first
    settings = {name: value for name, value in first.cell.settings.items() if name != AXIS}
    return replace(
        first,
        cell=replace(first.cell, settings=settings, label=label(settings)),
        recorded=all(one.recorded for one in group),
        rtt_measured_ns=_whole(one.rtt_measured_ns for one in group),
        goodput_ratio=min(
            (r for one in group if (r := one.goodput_ratio) is not None), default=None
        ),
        link_problems=_named(group, "link_problems"),
        late_problems=_named(group, "late_problems"),
        integrity_problems=[said for one in group for said in one.integrity_problems],
        arms={arm: merge_arm([one.arms[arm] for one in group]) for arm in first.arms},
        answers=_answers([one.answers for one in group]),
        controls=_controls(group),
        hits={arm: _hits([one.hits[arm] for one in group]) for arm in first.hits},
        fetching={
            arm: _fetching([one.fetching[arm] for one in group])
            for arm in first.fetching
            if all(arm in one.fetching for one in group)
        },
        bound_ns=_whole(one.bound_ns for one in group),
        ratio_to_bound=mean(one.ratio_to_bound for one in group),
        gain=mean(one.gain for one in group),
        gain_change_percent=mean(one.gain_change_percent for one in group),
        gain_change_points=mean(one.gain_change_points for one in group),
        # Each seed's are in the problems, where there are any.
        timers=None,
        wait=None,
    )


def student_interval(values: Sequence[float]) -> Interval | None:
    """Of the mean of what two or more seeds came to; None with fewer."""
    found = of_mean(values)
    return found and Interval(round(found.low), round(found.high), CONFIDENCE)


def mean(values: Iterable[float | None]) -> float | None:
    """None as soon as one has no value: a mean of some seeds is another thing."""
    found = list(values)
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def merge_arm(arms: Sequence[ArmResult]) -> ArmResult:
    """One arm of all seeds."""
    first = arms[0]
    return replace(
        first,
        asked=sum(one.asked for one in arms),
        n=sum(one.n for one in arms),
        failed=[said for one in arms for said in one.failed],
        missing=sum(one.missing for one in arms),
        ttft=_ttft([one.ttft for one in arms]),
        spans_ns={
            span: round(sum(one.spans_ns[span] for one in arms) / len(arms))
            for span in first.spans_ns
            if all(span in one.spans_ns for one in arms)
        },
        wire_bytes=round(sum(one.wire_bytes for one in arms) / len(arms)),
        wire_bytes_total=sum(one.wire_bytes_total for one in arms),
        joules=_joules([one.joules for one in arms]),
        sources=_sum(one.sources for one in arms),
        misses=_sum(one.misses for one in arms),
        fetched=sum(one.fetched for one in arms),
        misnamed=[said for one in arms for said in one.misnamed],
        spans_off=[said for one in arms for said in one.spans_off],
        worst_span_error=max(one.worst_span_error for one in arms),
    )


def _ttft(ttfts: Sequence[Ttft]) -> Ttft:
    def over_seeds(name: str) -> tuple[int | None, Interval | None]:
        values = [getattr(one, name) for one in ttfts]
        if any(value is None for value in values):
            return None, None
        return round(sum(values) / len(values)), student_interval(values)

    middle, p50, p99 = over_seeds("mean_ns"), over_seeds("p50_ns"), over_seeds("p99_ns")
    slowest = [one.max_ns for one in ttfts if one.max_ns is not None]
    return Ttft(
        samples_ns=tuple(sample for one in ttfts for sample in one.samples_ns),
        mean_ns=middle[0],
        p50_ns=p50[0],
        p99_ns=p99[0],
        max_ns=max(slowest, default=None),
        mean_interval=middle[1],
        p50_interval=p50[1],
        p99_interval=p99[1],
        per_seed=True,
    )


def _joules(found: Sequence[Joules | None]) -> Joules | None:
    known = [one for one in found if one is not None]
    if len(known) < len(found) or not known:
        return None
    parts = known[0].__dataclass_fields__
    return Joules(**{part: sum(getattr(one, part) for one in known) / len(known) for part in parts})


def _fetching(found: Sequence[Fetching]) -> Fetching:
    return Fetching(
        requests=sum(one.requests for one in found),
        time_ns=round(sum(one.time_ns for one in found) / len(found)),
        chunks=round(sum(one.chunks for one in found) / len(found)),
        goodput_bps=sum(one.goodput_bps for one in found) / len(found),
        round_trips=mean(one.round_trips for one in found),
        predicted_ns=_whole(one.predicted_ns for one in found),
    )


def _hits(found: Sequence[Hits]) -> Hits:
    tiers = dict.fromkeys(tier for one in found for tier in one.ttft_ns)
    times = {tier: [one.ttft_ns[tier] for one in found if tier in one.ttft_ns] for tier in tiers}
    return Hits(
        tokens=_sum(one.tokens for one in found),
        requests=_sum(one.requests for one in found),
        # Of the seeds in which the tier was needed at all.
        ttft_ns={tier: round(sum(seen) / len(seen)) for tier, seen in times.items()},
    )


def _answers(found: Sequence[Comparison]) -> Comparison:
    diffs = [one.logits_diff for one in found if one.logits_diff is not None]
    return Comparison(
        compared=sum(one.compared for one in found),
        wrong=[said for one in found for said in one.wrong],
        without_reference=[said for one in found for said in one.without_reference],
        without_logits=[said for one in found for said in one.without_logits],
        logits_diff=max(diffs, default=None),
    )


def _controls(group: Sequence[CellResult]) -> list[ControlResult]:
    by_arm: dict[str, ControlResult] = {}
    for control in (control for one in group for control in one.controls):
        whole = by_arm.setdefault(control.arm, ControlResult(control.arm))
        whole.compared += control.compared
        whole.words_differ += control.words_differ
        whole.diffs += control.diffs
        whole.without_reference += control.without_reference
    return list(by_arm.values())


def _named(group: Sequence[CellResult], problems: str) -> list[str]:
    return [
        f"seed {one.cell.scenario.seed}: {said}" for one in group for said in getattr(one, problems)
    ]


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _whole(values: Iterable[float | None]) -> int | None:
    found = mean(values)
    return None if found is None else round(found)
