"""Other people's traffic on a link, at a share of its rate."""

from __future__ import annotations

import asyncio

from geokv.clock import now_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.lab.background import Traffic, link_flows
from geokv.lab.build import Lab
from geokv.scenario.timeline import Background
from geokv.units import NS_PER_S

_WINDOW_S = 0.05
_ENOUGH = 0.9
"""Of the share asked for, over one window. UDP does not yield; TCP starts slowly."""


class BackgroundFault(Fault[Background]):
    """Seen by the counters of the line in each direction, and by those of the flows."""

    kind = "background"
    deadline_s = 25.0

    def __init__(self, event: Background, stage: Stage) -> None:
        super().__init__(event, stage)
        self._traffic: Traffic | None = None
        self._since_ns = 0

    async def inject(self) -> Evidence:
        lab, event = self.stage.lab, self.event
        if not event.share:
            return Evidence(now_ns(), f"nothing was to be sent over {event.link}", {"asked_bps": 0})
        plan = lab.link_plan(event.link)
        senders = (plan.a, plan.b) if event.direction is None else event.direction.split("-to-")[:1]
        flows = [
            flow
            for sender in senders
            for flow in link_flows(lab, event.link, sender, event.kind, event.share, event.flows)
        ]
        self._traffic = Traffic(flows)
        await self._traffic.start()
        self._since_ns = now_ns()
        ends = [0 if sender == plan.a else 1 for sender in senders]
        asked_bps = event.share * plan.rate_bps
        while True:
            line_bps, flow_bps = await self._rates(lab, ends)
            if line_bps >= _ENOUGH * asked_bps and flow_bps >= _ENOUGH * self._payload(asked_bps):
                break
        data = {
            "asked_bps": round(asked_bps),
            "line_bps": round(line_bps),
            "flows_bps": round(flow_bps),
        }
        said = f"{event.link} carries {line_bps / plan.rate_bps:.2f} of its rate"
        return Evidence(self._since_ns, said, data)

    async def heal(self) -> Evidence:
        if self._traffic is None:
            return Evidence(now_ns(), "there was no traffic", {})
        await self._traffic.stop()
        ended_ns = now_ns()
        counts = self._traffic.counts()
        # What TCP has handed on may still be in its buffers.
        moved = sum(count.arrived_bytes or count.sent_bytes for count in counts)
        lasted_s = (ended_ns - self._since_ns) / NS_PER_S
        data = {
            "moved_bytes": moved,
            "lasted_s": round(lasted_s, 6),
            "flows": len(counts),
        }
        return Evidence(ended_ns, f"its process has ended, after {moved} bytes", data)

    def _payload(self, rate_bps: float) -> float:
        """What flows count of a rate on the line: TCP its payload, UDP whole frames."""
        plan = self.stage.lab.link_plan(self.event.link)
        if self.event.kind == "udp":
            return rate_bps
        return rate_bps * plan.payload_rate_bps / plan.rate_bps

    async def _rates(self, lab: Lab, ends: list[int]) -> tuple[float, float]:
        """Of the slowest direction on the line, and of the flows of one direction, in bit/s."""
        assert self._traffic is not None, "it was started"
        before, start_ns = self._counters(lab, ends), now_ns()
        await asyncio.sleep(_WINDOW_S)
        after, lasted_ns = self._counters(lab, ends), now_ns() - start_ns
        gained = [new - old for old, new in zip(before, after, strict=True)]
        gains = [count * 8 * NS_PER_S / lasted_ns for count in gained]
        return min(gains[:-1]), gains[-1] / len(ends)

    def _counters(self, lab: Lab, ends: list[int]) -> list[int]:
        assert self._traffic is not None, "it was started"
        states = lab.qdiscs(self.event.link)
        flows = self._traffic.counts()
        sent = [states[end].sent_bytes for end in ends]
        return [*sent, sum(one.arrived_bytes or one.sent_bytes for one in flows)]
