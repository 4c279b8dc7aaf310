"""A GPU that is throttled or shared: what it is charged for takes so many times as long."""

from __future__ import annotations

from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.slowness import make_slow
from geokv.scenario.timeline import SlowGpu


class SlowGpuFault(Fault[SlowGpu]):
    """Read back over the control socket: nothing but the length of answers shows it outside."""

    kind = "slow-gpu"
    alone = True

    async def inject(self) -> Evidence:
        return await make_slow(self.stage, self.event.site, "gpu", self.event.factor)

    async def heal(self) -> Evidence:
        return await make_slow(self.stage, self.event.site, "gpu", 1.0)
