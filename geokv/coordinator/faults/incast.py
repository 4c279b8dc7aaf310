"""Many send to one at the same moment, as fast as they can."""

from __future__ import annotations

import asyncio

from geokv.clock import now_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.lab.background import Traffic, path_flow
from geokv.scenario.timeline import Incast
from geokv.units import NS_PER_S

_LOOK_EVERY_S = 0.001


class IncastFault(Fault[Incast]):
    """Seen when bytes of every sender have come; over when all of them have."""

    kind = "incast"

    def __init__(self, event: Incast, stage: Stage) -> None:
        super().__init__(event, stage)
        self._size = max(1, event.bytes // stage.lab.plan.byte_scale)
        narrowest = min(
            stage.lab.plan.path(site, event.to).payload_rate_bps for site in event.from_
        )
        ideal_s = self._size * 8 * len(event.from_) / narrowest
        self.deadline_s = 25.0 + 4 * ideal_s
        self._traffic: Traffic | None = None
        self._since_ns = 0

    async def inject(self) -> Evidence:
        lab, event = self.stage.lab, self.event
        flows = [path_flow(lab, site, event.to, self._size) for site in event.from_]
        traffic = Traffic(flows)
        await traffic.start()
        self._traffic = traffic
        self._since_ns = now_ns()
        while not all(count.arrived_bytes for count in self._traffic.counts()):
            await asyncio.sleep(_LOOK_EVERY_S)
        came_ns = now_ns()
        said = f"bytes of {', '.join(event.from_)} have come to {event.to}"
        return Evidence(came_ns, said, {"senders": len(event.from_), "bytes_each": self._size})

    async def heal(self) -> Evidence:
        if self._traffic is None:
            return Evidence(now_ns(), "nobody sent", {})
        try:
            while not all(count.ended_ns for count in self._traffic.counts()):
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            await self._traffic.stop()
        counts = self._traffic.counts()
        ended_ns = max(count.ended_ns for count in counts)
        took = [round((count.ended_ns - self._since_ns) / NS_PER_S, 6) for count in counts]
        rate_bps = self._size * len(counts) * 8 * NS_PER_S / (ended_ns - self._since_ns)
        data = {"took_s": took, "goodput_bps": round(rate_bps)}
        return Evidence(ended_ns, f"all of it has come, the last after {max(took):g} s", data)
