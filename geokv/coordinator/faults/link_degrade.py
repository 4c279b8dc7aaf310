"""A link becomes worse without going away: slower, longer, lossy, unruly.

What hosts and routers were set up with stays (``Lab.disturb``). The kernel's settings are read
back; what can be seen from outside is looked at too, with packets enough to see it and not more:
at most 2000 of 64 bytes for shares of packets, 20 full frames for a rate, a few for a delay, 16
round trips for jitter.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.lab.link_plan import LinkPlan
from geokv.lab.probe import SMALL_FRAME_BYTES, LinkProbe, Train
from geokv.lab.sight import LinkSight
from geokv.lab.topology import Link
from geokv.scenario.timeline import LinkDegrade
from geokv.units import NS_PER_S

_SHARES = ("loss", "corrupt", "reorder", "duplicate")
_HAPPENED = (
    ("loss", "lost"),
    ("corrupt", "damaged"),
    ("overtook", "overtaken"),
    ("duplicate", "doubled"),
)
_MOST_FRAMES, _FEWEST_FRAMES, _WANTED_HITS = 2000, 50, 20
_RATE_FRAMES = 20
_RATE_SLACK, _TIME_SLACK_NS = 1.05, 5_000
_SEEN_WITHIN_S = 2.0
_JITTER_TRIPS, _FEWEST_TRIPS = 16, 12
_LEAST_SPREAD = 0.5
"""Of the jitter. Each of two ways is drawn evenly from ±jitter, so round trips lie within ±2 jitter
of their mean; that twelve of them lie within half a jitter happens once in 700,000 times
(12 · 0.234^11)."""


class LinkDegradeFault(Fault[LinkDegrade]):
    """Seen in the kernel's settings, in round trips and in trains of frames."""

    kind = "link-degrade"
    deadline_s = 10.0
    _before: dict[str, Any] | None = None

    @property
    def claims(self) -> frozenset[str]:
        """Each property of the link by itself: one may be slower while another makes it lossy."""
        named = {"loss" if name == "loss_model" else name for name in _named(self.event)}
        return frozenset(f"{name} of {self.event.link}" for name in named)

    async def inject(self) -> Evidence:
        lab, link = self.stage.lab, self.event.link
        drawn = lab.plan.topology.links[link]
        asked = _changes(self.event, drawn)
        before = {name: getattr(drawn, name) for name in asked}
        if before == asked:
            raise FaultError(f"link {link} is like that already")
        was = lab.link_plan(link)
        self._before = before
        plan = lab.disturb(link, **asked)
        since_ns = now_ns()
        data = {"asked": self.event.model_dump(mode="json", include=set(_named(self.event)))}
        data |= await self._look(plan, was)
        return Evidence(since_ns, f"{link}: {self._in_words(data['measured'])}", data)

    async def heal(self) -> Evidence:
        if self._before is None:
            return Evidence(now_ns(), "it was not degraded by this", {})
        lab, link = self.stage.lab, self.event.link
        plan = lab.disturb(link, **self._before)
        healed_ns = now_ns()
        with LinkSight(lab, link) as sight:
            for end in (0, 1):
                await sight.until_open(end, deadline_s=_SEEN_WITHIN_S)
            trip_ns = await sight.round_trip_ns()
            data = {"rtt_ns": trip_ns, "rtt_planned_ns": plan.rtt_ns}
            data |= {"probes": sight.packets, "probe_bytes": sight.sent_bytes}
        return Evidence(healed_ns, f"{link} is as before; a frame crossed each way", data)

    async def _look(self, plan: LinkPlan, was: LinkPlan) -> dict[str, Any]:
        """What is seen of the degraded link, in a hurry.

        Raises:
            FaultError: it is not what the kernel says.
        """
        lab, event = self.stage.lab, self.event
        measured: dict[str, Any] = {}
        sent_bytes = 0
        if plan.delay_ns != was.delay_ns:
            with LinkSight(lab, event.link) as sight:
                trip_ns = await _some_round_trip(sight)
                sent_bytes += sight.sent_bytes
            if trip_ns is not None:
                measured["rtt_ns"] = trip_ns
                if trip_ns < plan.rtt_ns - 2 * plan.jitter_ns - _TIME_SLACK_NS:
                    raise FaultError(
                        f"link {event.link} has a round trip of {trip_ns} ns, "
                        f"less than {plan.rtt_ns} ns"
                    )
        if plan.jitter_ns > was.jitter_ns:
            trips, probed_bytes = await self._round_trips(_JITTER_TRIPS)
            sent_bytes += probed_bytes
            if len(trips) >= _FEWEST_TRIPS:
                spread_ns = max(trips) - min(trips)
                measured["spread_ns"] = spread_ns
                if spread_ns < _LEAST_SPREAD * plan.jitter_ns:
                    raise FaultError(
                        f"round trips over {event.link} spread by {spread_ns} ns, "
                        f"with a jitter of {plan.jitter_ns} ns"
                    )
        with LinkProbe(lab, event.link) as probe:
            count = _frames_for(plan)
            if count:
                trains = [await asyncio.to_thread(probe.train, end, count) for end in (0, 1)]
                sent_bytes += 2 * count * SMALL_FRAME_BYTES
                measured |= _shares(trains)
                _check_shares(event.link, plan, trains)
            if plan.rate_bps != was.rate_bps:
                size = plan.mtu + 14
                train = await asyncio.to_thread(probe.train, 0, _RATE_FRAMES, size)
                sent_bytes += _RATE_FRAMES * size
                rate = train.line_rate_bps
                if rate is not None:
                    measured["rate_bps"] = round(rate)
                    if was.rate_bps > plan.rate_bps and rate > plan.rate_bps * _RATE_SLACK:
                        raise FaultError(
                            f"link {event.link} carries {rate:.4g} bit/s, more than {plan.rate_bps}"
                        )
        return {"measured": measured, "probe_bytes": sent_bytes}

    async def _round_trips(self, looks: int) -> tuple[list[int], int]:
        """Of so many tries those that were not lost, in ns, and what they put on the way."""
        with LinkSight(self.stage.lab, self.event.link) as sight:
            tried = [await sight.round_trip_ns(1) for _ in range(looks)]
            return [trip for trip in tried if trip is not None], sight.sent_bytes

    def _in_words(self, measured: dict[str, Any]) -> str:
        """Rates as of the deployment that the run stands for, like those of the scenario."""
        said = []
        if "rtt_ns" in measured:
            said.append(f"a round trip of {1000 * measured['rtt_ns'] / NS_PER_S:.3f} ms")
        if "spread_ns" in measured:
            spread_ms = 1000 * measured["spread_ns"] / NS_PER_S
            said.append(f"round trips that spread by {spread_ms:.3f} ms")
        if "rate_bps" in measured:
            rate_bps = measured["rate_bps"] * self.stage.lab.plan.byte_scale
            said.append(f"a line of {rate_bps / 1e9:.3g} Gb/s")
        for key, word in _HAPPENED:
            if key in measured:
                said.append(f"{100 * measured[key]:.2g} % of frames {word}")
        return ", ".join(said) or "the kernel has the settings"


def _named(event: LinkDegrade) -> list[str]:
    names = ("rate", "delay", "jitter", "loss_model", *_SHARES)
    return [name for name in names if getattr(event, name) is not None]


def _changes(event: LinkDegrade, drawn: Link) -> dict[str, Any]:
    """Fields of the link, new; one kind of loss takes the place of the other."""
    changes = {name: getattr(event, name) for name in _named(event)}
    if "delay" in changes:
        changes["extra_delay"] = drawn.extra_delay + changes.pop("delay")
    if "loss_model" in changes:
        changes.setdefault("loss", None)
    elif "loss" in changes and drawn.loss_model is not None:
        changes["loss_model"] = None
    return changes


def _frames_for(plan: LinkPlan) -> int:
    """Small frames that show the rarest share, within bounds; 0 when there is none to see."""
    forward = plan.forward
    shares = [forward.mean_loss, *(share / 2**32 for share in _others(plan))]
    rarest = min((share for share in shares if share), default=0.0)
    if not rarest:
        return 0
    return max(_FEWEST_FRAMES, min(_MOST_FRAMES, math.ceil(_WANTED_HITS / rarest)))


def _others(plan: LinkPlan) -> tuple[int, int, int]:
    forward = plan.forward
    return forward.corrupt_u32, forward.reorder_u32, forward.duplicate_u32


def _shares(trains: list[Train]) -> dict[str, float]:
    sent = sum(train.sent for train in trains)
    lost = sum(train.sent - train.intact - train.corrupt for train in trains)
    counts = {
        "loss": lost,
        "corrupt": sum(train.corrupt for train in trains),
        "overtook": sum(train.overtook for train in trains),
        "duplicate": sum(train.duplicate for train in trains),
    }
    return {name: round(count / sent, 6) for name, count in counts.items() if count}


def _check_shares(link: str, plan: LinkPlan, trains: list[Train]) -> None:
    """Something of every share that is large enough to show in so many frames."""
    sent = sum(train.sent for train in trains)
    seen = _shares(trains)
    corrupt, reorder, duplicate = (share / 2**32 for share in _others(plan))
    asked = {
        "loss": plan.forward.mean_loss,
        "corrupt": corrupt,
        "overtook": reorder,
        "duplicate": duplicate,
    }
    for name, share in asked.items():
        if share * sent >= _WANTED_HITS and not seen.get(name):
            raise FaultError(f"link {link}: no {name} in {sent} frames")


async def _some_round_trip(sight: LinkSight) -> int | None:
    """Of the first few tries that were not lost; None when all were."""
    for _ in range(10):
        trip_ns = await sight.round_trip_ns(1)
        if trip_ns is not None:
            return trip_ns
    return None
