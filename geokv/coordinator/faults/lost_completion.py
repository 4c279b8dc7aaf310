"""A transfer of which all but the end comes: its completion is lost."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.meddled import counted, first_seen
from geokv.scenario.timeline import LostCompletion


class LostCompletionFault(Fault[LostCompletion]):
    """Done in the process that serves, and seen by its count of answers it did not end."""

    kind = "lost-completion"
    alone = True

    async def inject(self) -> Evidence:
        site = self.event.site
        await self.stage.control(site).post("/completions", one_in=self.event.one_in)
        seen = await first_seen(self.stage, [site], "uncompleted")
        return Evidence(seen.first_ns, f"an answer of site {site} was not completed", {})

    async def heal(self) -> Evidence:
        site = self.event.site
        await self.stage.control(site).post("/completions", one_in=0)
        seen = await counted(self.stage, [site], "uncompleted")
        said = f"site {site} completes what it sends; {seen.times} answers were not completed"
        return Evidence(now_ns(), said, {"lost": seen.times})
