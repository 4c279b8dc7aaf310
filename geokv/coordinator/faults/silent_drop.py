"""Packets vanish and nobody is told: a full table, a wrong filter, a black hole."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.hush import Way, lift_silence, see_silence
from geokv.lab.sight import LinkSight, PathSight
from geokv.lab.silence import silence_link, silence_sites
from geokv.scenario.timeline import SilentDrop


class SilentDropFault(Fault[SilentDrop]):
    """Both directions of a link, or all that one site sends to another."""

    kind = "silent-drop"

    def __init__(self, event: SilentDrop, stage: Stage) -> None:
        super().__init__(event, stage)
        self._ways: list[Way] = []

    @property
    def target(self) -> str:
        return self.event.link or f"{self.event.from_}-to-{self.event.to}"

    @property
    def _what(self) -> str:
        return f"over {self.event.link}" if self.event.link else f"{self.target}"

    async def inject(self) -> Evidence:
        lab, event = self.stage.lab, self.event
        if event.link is not None:
            plan = lab.link_plan(event.link)
            sight = LinkSight(lab, event.link)
            for end, site in enumerate((plan.a, plan.b)):
                self._ways.append(Way(silence_link(lab, event.link, site), sight, end))
        else:
            assert event.from_ is not None and event.to is not None, "the scenario was checked"
            path = PathSight(lab, event.from_, event.to)
            self._ways.append(Way(silence_sites(lab, event.from_, event.to), path, 0))
        return await see_silence(self._ways, now_ns(), self._what)

    async def heal(self) -> Evidence:
        if not self._ways:
            return Evidence(now_ns(), "nothing was silenced", {})
        return await lift_silence(self._ways, self._what)
