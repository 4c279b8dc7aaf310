"""A GPU that is throttled or shared: what it is charged for takes so many times as long."""

from __future__ import annotations

from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.slowness import DEADLINE_S, make_quick, make_slow
from geokv.scenario.timeline import SlowGpu


class SlowGpuFault(Fault[SlowGpu]):
    """Seen in the time that a step of one token takes."""

    kind = "slow-gpu"
    deadline_s = DEADLINE_S
    alone = True

    async def inject(self) -> Evidence:
        return await make_slow(self.stage, self.event.site, "gpu", self.event.factor)

    async def heal(self) -> Evidence:
        return await make_quick(self.stage, self.event.site, "gpu", self.event.factor)
