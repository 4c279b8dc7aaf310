"""A disk that is worn or shared: every access takes so many times as long."""

from __future__ import annotations

from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.slowness import make_slow
from geokv.scenario.timeline import DiskSlow


class DiskSlowFault(Fault[DiskSlow]):
    """Read back over the control socket: nothing but the length of answers shows it outside."""

    kind = "disk-slow"
    alone = True

    async def inject(self) -> Evidence:
        return await make_slow(self.stage, self.event.site, "disk", self.event.factor)

    async def heal(self) -> Evidence:
        return await make_slow(self.stage, self.event.site, "disk", 1.0)
