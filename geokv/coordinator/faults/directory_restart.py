"""The table ends and begins anew at once: with nothing, or with what it knew a while ago."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.table import order, table_site
from geokv.errors import FaultError
from geokv.scenario.timeline import DirectoryRestart


class DirectoryRestartFault(Fault[DirectoryRestart]):
    """Seen by its new epoch, over the control socket of the site that keeps it. A stale one has
    what was told by the time the first request was sent."""

    kind = "directory-restart"

    @property
    def target(self) -> str:
        return table_site(self.stage)

    async def prepare(self) -> None:
        if self.event.how == "stale":
            await order(self.stage, "keep")

    async def inject(self) -> Evidence:
        before = await self._epoch()
        after = await order(self.stage, "start", self.event.how)
        if after["epoch"] == before:
            raise FaultError(f"the table still has epoch {before}")
        said = f"the table at {self.target} began anew with {after['entries']} entries"
        return Evidence(now_ns(), said, {"epoch": after["epoch"], "entries": after["entries"]})

    async def _epoch(self) -> int:
        stats = await self.stage.control(self.target).get("/stats")
        epoch: int = stats["cache"]["directory"]["epoch"]
        return epoch
