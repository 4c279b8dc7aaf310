"""The table ends: it answers nobody, and when it is back it is empty."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.table import order, table_site
from geokv.errors import FaultError
from geokv.scenario.timeline import DirectoryKill


class DirectoryKillFault(Fault[DirectoryKill]):
    """Seen over the control socket of the site that keeps it: others see it only by asking, and
    a question is an event of the drill."""

    kind = "directory-kill"

    @property
    def target(self) -> str:
        return table_site(self.stage)

    async def inject(self) -> Evidence:
        site = self.target
        before = await self.stage.control(site).get("/directory")
        if not before["here"]:
            raise FaultError(f"site {site} keeps no table now")
        await order(self.stage, "stop")
        if (await self.stage.control(site).get("/directory"))["here"]:
            raise FaultError(f"the table at {site} is still there")
        lost = len(before["keys"])
        return Evidence(now_ns(), f"the table at {site} is gone with {lost} keys", {"lost": lost})

    async def heal(self) -> Evidence:
        said = await order(self.stage, "start", "empty")
        return Evidence(
            now_ns(),
            f"site {self.target} keeps a table again, of epoch {said['epoch']}",
            {"epoch": said["epoch"]},
        )
