"""Somebody else needs the machine's memory: the DRAM tier must do with less."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.scenario.timeline import MemoryPressure


class MemoryPressureFault(Fault[MemoryPressure]):
    """Read over the control socket: how many chunks the site can read is known to it alone."""

    kind = "memory-pressure"
    alone = True

    async def inject(self) -> Evidence:
        site = self.event.site
        control = self.stage.control(site)
        before = (await control.get("/pools"))["dram"]["total"]
        said = await control.post("/shrink", dram_keep=self.event.dram_keep)
        if said["slots"] >= before:
            raise FaultError(f"{said['slots']} of {before} places are left")
        held = len((await control.get("/held"))["dram"])
        return Evidence(
            now_ns(),
            f"the dram of site {site} has {said['slots']} places, {said['evicted']} chunks went",
            {**said, "held": held},
        )

    async def heal(self) -> Evidence:
        site = self.event.site
        said = await self.stage.control(site).post("/shrink", dram_keep=1.0)
        return Evidence(now_ns(), f"the dram of site {site} has {said['slots']} places", said)
