"""The fibre is cut: both ends lose their carrier, and what was on its way is gone."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.light import go_dark, light_up
from geokv.scenario.timeline import LinkCut


class LinkCutFault(Fault[LinkCut]):
    """Seen by carriers and probes at both ends."""

    kind = "link-cut"
    _dark = False

    async def inject(self) -> Evidence:
        seen = await go_dark(self.stage.lab, self.event.link)
        self._dark = True
        return seen

    async def heal(self) -> Evidence:
        if not self._dark:
            return Evidence(now_ns(), "it was not cut by this", {})
        return await light_up(self.stage.lab, self.event.link)
