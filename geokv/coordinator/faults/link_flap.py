"""A loose connector: the light goes and comes again and again, each time for so long."""

from __future__ import annotations

import asyncio

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.light import go_dark, light_up
from geokv.lab.outage import carriers, cut, restore
from geokv.scenario.timeline import LinkFlap
from geokv.units import NS_PER_S


class LinkFlapFault(Fault[LinkFlap]):
    """The first cut is seen like any other; the rest keep to its clock, and each is looked at."""

    kind = "link-flap"

    def __init__(self, event: LinkFlap, stage: Stage) -> None:
        super().__init__(event, stage)
        self._rest: asyncio.Task[None] | None = None
        self._dark = 0
        self._lit = 0

    async def inject(self) -> Evidence:
        seen = await go_dark(self.stage.lab, self.event.link)
        self._dark = 1
        self._rest = asyncio.create_task(self._go_on(seen.t_ns), name=f"flaps of {self.target}")
        return seen

    async def heal(self) -> Evidence:
        if self._rest is None:
            return Evidence(now_ns(), "it did not flap", {})
        self._rest.cancel()
        await asyncio.gather(self._rest, return_exceptions=True)
        seen = await light_up(self.stage.lab, self.event.link)
        asked = self.event.times
        counts = {"asked": asked, "seen_dark": self._dark, "seen_lit": self._lit}
        said = f"{self.event.link} was dark {self._dark} times of {asked} asked; {seen.seen}"
        return Evidence(seen.t_ns, said, {**counts, **seen.data})

    async def _go_on(self, dark_ns: int) -> None:
        lab, link, event = self.stage.lab, self.event.link, self.event
        down_ns, up_ns = (round(seconds * NS_PER_S) for seconds in (event.down, event.up))
        for number in range(event.times):
            begin_ns = dark_ns + number * (down_ns + up_ns)
            if number:
                await wait_until_ns(begin_ns)
                cut(lab, link)
                self._dark += not any(carriers(lab, link))
            await wait_until_ns(begin_ns + down_ns)
            restore(lab, link)
            self._lit += all(carriers(lab, link))
