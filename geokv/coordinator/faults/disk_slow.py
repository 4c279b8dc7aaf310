"""A disk that is worn or shared: every access takes so many times as long."""

from __future__ import annotations

from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.slowness import DEADLINE_S, make_quick, make_slow
from geokv.scenario.timeline import DiskSlow


class DiskSlowFault(Fault[DiskSlow]):
    """Seen in the time that the read of one page takes."""

    kind = "disk-slow"
    deadline_s = DEADLINE_S
    alone = True

    async def inject(self) -> Evidence:
        return await make_slow(self.stage, self.event.site, "disk", self.event.factor)

    async def heal(self) -> Evidence:
        return await make_quick(self.stage, self.event.site, "disk", self.event.factor)
