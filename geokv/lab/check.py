"""Every link against its plan, cheap enough to run before and after each cell.

Tolerances: ``virtual`` 0.5 % or 5 µs, ``wall`` 5 % or 0.1 ms of the round trip, whichever is
larger; goodput at least 0.95 of the plan's payload rate. A link out of tolerance voids the run.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from geokv.clock import now_ns
from geokv.lab.build import Lab
from geokv.lab.burst import measure_burst
from geokv.lab.link_plan import LinkPlan, wire_time_ns
from geokv.lab.probe import SMALL_FRAME_BYTES, Echoes, LinkProbe, Train, train_frames
from geokv.lab.settings import U32, GilbertElliottU32
from geokv.units import NS_PER_S

Clock = Literal["virtual", "wall"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a measurement may be from the plan."""

    rtt_share: float
    rtt_floor_ns: int
    goodput_floor: float = 0.95
    goodput_ceiling: float = 1.02
    spread_share: float = 1.0
    """Share of the one-way times, around their median, whose spread counts as jitter: in real
    time the outer ones are the host's scheduler and not the link."""


TOLERANCES: dict[Clock, Tolerance] = {
    "virtual": Tolerance(0.005, 5_000),
    "wall": Tolerance(0.05, 100_000, goodput_ceiling=1.05, spread_share=0.5),
}

_QUICK_ECHOES, _FULL_ECHOES = 20, 200
_QUICK_TRAIN, _FULL_TRAIN = 100, 4000
_SIGMAS = 5.0
_IDLE_DEADLINE_S = 10.0


@dataclass(slots=True)
class LinkCheck:
    """Asked and measured, side by side.

    Attributes:
        rtt_asked_ns: the plan's, of a packet without length.
        rtt_expected_ns: with the probe's own time on the wire; what is compared.
        rtt_measured_ns: median; None when no probe came back.
        jitter_measured_ns: half the spread of the one-way times, of ``spread_share`` of them.
        loss_*: share of probes lost, both directions together; None when not asked for and none.
        goodput_*_bps: TCP payload; forward is a to b. With lost or disturbed packets it is taken
            from the spacing of a train of full frames, not from TCP (``goodput_by``).
        dropped_packets: by the two queues during the check.
        problems: one sentence each; empty when within tolerance.
    """

    link: str
    rtt_asked_ns: int
    rtt_expected_ns: int
    goodput_asked_bps: int
    loss_asked: float
    jitter_asked_ns: int
    probes: int = 0
    rtt_measured_ns: int | None = None
    rtt_max_ns: int | None = None
    one_way_forward_ns: int | None = None
    one_way_backward_ns: int | None = None
    jitter_measured_ns: int | None = None
    loss_measured: float | None = None
    corrupt_measured: float | None = None
    duplicate_measured: float | None = None
    overtook_measured: float | None = None
    goodput_forward_bps: float | None = None
    goodput_backward_bps: float | None = None
    goodput_by: str = "tcp"
    dropped_packets: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the link is as asked."""
        return not self.problems

    @property
    def goodput_ratio(self) -> float | None:
        """Measured over asked, of the worse direction."""
        rates = (self.goodput_forward_bps, self.goodput_backward_bps)
        if rates[0] is None or rates[1] is None or not self.goodput_asked_bps:
            return None
        return min(rates[0], rates[1]) / self.goodput_asked_bps

    def record(self) -> dict[str, Any]:
        """Plain data for ``links.json``."""
        return {**asdict(self), "ok": self.ok, "goodput_ratio": self.goodput_ratio}


def check_links(
    lab: Lab,
    links: Iterable[str] | None = None,
    *,
    quick: bool = True,
    clock: Clock = "virtual",
) -> list[LinkCheck]:
    """Measure links and compare them with the plan; the links should be idle.

    Args:
        links: which ones; all by default.
        quick: few probes (before and after a cell) or many (``geokv check``).

    Raises:
        LabError: a measurement could not be made at all.
    """
    return [check_link(lab, link, quick=quick, clock=clock) for link in links or lab.plan.links]


def check_link(lab: Lab, link: str, *, quick: bool = True, clock: Clock = "virtual") -> LinkCheck:
    """Measure one link and compare it with the plan."""
    plan = lab.link_plan(link)
    before = sum(state.dropped for state in lab.qdiscs(link))
    found = LinkCheck(
        link=link,
        rtt_asked_ns=plan.rtt_ns,
        rtt_expected_ns=plan.rtt_ns + 2 * wire_time_ns(SMALL_FRAME_BYTES, plan.rate_bps),
        goodput_asked_bps=plan.payload_rate_bps,
        loss_asked=plan.mean_loss,
        jitter_asked_ns=plan.jitter_ns,
    )
    tolerance = TOLERANCES[clock]
    if not wait_idle(lab, link):
        found.problems = [f"link {link}: still busy after {_IDLE_DEADLINE_S:g} s, not measured"]
        return found
    with LinkProbe(lab, link) as probe:
        _take_echoes(
            found, probe.echo(_QUICK_ECHOES if quick else _FULL_ECHOES), tolerance.spread_share
        )
        if plan.forward.disturbs:
            count = _QUICK_TRAIN if quick else _FULL_TRAIN
            _take_trains(found, [probe.train(end, count) for end in (0, 1)])
            found.goodput_by = "train"
            frames, size = train_frames(plan), plan.mtu + 14
            rates = [probe.train(end, frames, size).line_rate_bps for end in (0, 1)]
            share = plan.payload_rate_bps / plan.rate_bps
            found.goodput_forward_bps, found.goodput_backward_bps = (
                None if rate is None else rate * share for rate in rates
            )
    if not plan.forward.disturbs:
        found.goodput_forward_bps = measure_burst(lab, link, plan.a).goodput_bps
        found.goodput_backward_bps = measure_burst(lab, link, plan.b).goodput_bps
    wait_idle(lab, link)
    found.dropped_packets = sum(state.dropped for state in lab.qdiscs(link)) - before
    found.problems = list(_problems(found, plan, tolerance))
    return found


def wait_idle(lab: Lab, link: str) -> bool:
    """Let what is in flight on a link arrive; False when it is busy to the deadline.

    A line keeps its order, so a packet sent before a change of distance holds up those after it.
    """
    until = now_ns() + round(_IDLE_DEADLINE_S * NS_PER_S)
    while any(state.queued for state in lab.qdiscs(link)):
        if now_ns() > until:
            return False
        time.sleep(0.001)
    return True


def _take_echoes(found: LinkCheck, echoes: Echoes, spread_share: float) -> None:
    found.probes = echoes.sent
    found.loss_measured = 1 - len(echoes.rtt_ns) / echoes.sent
    if not echoes.rtt_ns:
        return
    found.rtt_measured_ns = round(statistics.median(echoes.rtt_ns))
    found.rtt_max_ns = max(echoes.rtt_ns)
    found.one_way_forward_ns = round(statistics.median(echoes.forward_ns))
    found.one_way_backward_ns = round(statistics.median(echoes.backward_ns))
    ways = (echoes.forward_ns, echoes.backward_ns)
    found.jitter_measured_ns = max(_spread(times, spread_share) for times in ways) // 2


def _spread(times: list[int], share: float) -> int:
    """Largest less smallest of the middle ``share`` of the times."""
    ordered = sorted(times)
    outer = int(len(ordered) * (1 - share) / 2)
    return ordered[len(ordered) - 1 - outer] - ordered[outer]


def _take_trains(found: LinkCheck, trains: list[Train]) -> None:
    sent = sum(train.sent for train in trains)
    intact = sum(train.intact for train in trains)
    corrupt = sum(train.corrupt for train in trains)
    found.probes += sent
    found.loss_measured = 1 - (intact + corrupt) / sent
    found.corrupt_measured = corrupt / sent
    found.duplicate_measured = sum(train.duplicate for train in trains) / sent
    found.overtook_measured = sum(train.overtook for train in trains) / sent


def _problems(found: LinkCheck, plan: LinkPlan, tolerance: Tolerance) -> Iterable[str]:
    if plan.mean_loss >= 1:
        if found.rtt_measured_ns is not None:
            yield f"link {found.link}: cut in the plan, but probes come through"
        return
    yield from _rtt_problems(found, plan, tolerance)
    yield from _share_problems(found, plan)
    for direction, rate in (
        (f"{plan.a} to {plan.b}", found.goodput_forward_bps),
        (f"{plan.b} to {plan.a}", found.goodput_backward_bps),
    ):
        if rate is None:
            yield f"link {found.link}: no goodput could be measured from {direction}"
            continue
        ratio = rate / plan.payload_rate_bps
        if not tolerance.goodput_floor <= ratio <= tolerance.goodput_ceiling:
            yield (
                f"link {found.link}: goodput from {direction} is {ratio:.3f} of the plan "
                f"({rate / 1e9:.4g} of {plan.payload_rate_bps / 1e9:.4g} Gb/s)"
            )


def _rtt_problems(found: LinkCheck, plan: LinkPlan, tolerance: Tolerance) -> Iterable[str]:
    if found.rtt_measured_ns is None:
        yield f"link {found.link}: none of {found.probes} probes came back"
        return
    # the median of a triangular spread of half-width 2 J over n probes is off by about J/√n
    spread = 4 * plan.jitter_ns / math.sqrt(max(1, found.probes))
    allowed = max(tolerance.rtt_share * found.rtt_expected_ns, tolerance.rtt_floor_ns) + spread
    off = found.rtt_measured_ns - found.rtt_expected_ns
    if abs(off) > allowed:
        yield (
            f"link {found.link}: round trip is {found.rtt_measured_ns / 1000:.1f} µs, "
            f"{off / 1000:+.1f} µs from the plan (allowed {allowed / 1000:.1f})"
        )
    jitter = found.jitter_measured_ns or 0
    if not plan.forward.reorder_u32 and jitter > plan.jitter_ns * 1.05 + tolerance.rtt_floor_ns:
        yield (
            f"link {found.link}: one-way times spread by ±{jitter / 1000:.1f} µs, "
            f"asked ±{plan.jitter_ns / 1000:.1f}"
        )


def _share_problems(found: LinkCheck, plan: LinkPlan) -> Iterable[str]:
    settings = plan.forward
    for name, asked, measured in (
        ("lost", plan.mean_loss, found.loss_measured),
        ("corrupt", settings.corrupt_u32 / U32, found.corrupt_measured),
        ("duplicate", settings.duplicate_u32 / U32, found.duplicate_measured),
        ("overtaking", settings.reorder_u32 / U32, found.overtook_measured),
    ):
        if measured is None:
            continue
        if not asked:
            # a corrupted address or type is a lost frame, so corruption excuses some loss
            if measured and not (name == "lost" and settings.corrupt_u32):
                yield f"link {found.link}: {measured:.2%} of probes {name}, none asked"
            continue
        # losses in bursts vary more: by the mean length of a burst
        burst = _mean_burst(settings.loss_chain) if name == "lost" else 1.0
        sigma = math.sqrt(max(asked * (1 - asked), 1e-12) * (2 * burst) / max(1, found.probes))
        if abs(measured - asked) > _SIGMAS * sigma + 0.25 * asked * bool(settings.corrupt_u32):
            yield f"link {found.link}: {measured:.2%} of probes {name}, asked {asked:.2%}"
    if not found.dropped_packets:
        return
    if not plan.mean_loss:
        yield f"link {found.link}: {found.dropped_packets} packets dropped by a full queue"


def _mean_burst(chain: object) -> float:
    return U32 / chain.r if isinstance(chain, GilbertElliottU32) else 1.0
