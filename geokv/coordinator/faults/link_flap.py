"""A loose connector: the light goes and comes again and again, each time for so long."""

from __future__ import annotations

import asyncio

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.light import go_dark, light_up
from geokv.errors import FaultError
from geokv.lab.outage import carriers, cut, restore
from geokv.scenario.timeline import LinkFlap
from geokv.units import NS_PER_S


class LinkFlapFault(Fault[LinkFlap]):
    """The first cut is seen like any other; the rest keep to its clock, and each is looked at."""

    kind = "link-flap"

    def __init__(self, event: LinkFlap, stage: Stage) -> None:
        super().__init__(event, stage)
        self._rest: asyncio.Task[None] | None = None
        self._began_ns = 0
        self._dark = 0
        self._lit = 0

    async def inject(self) -> Evidence:
        seen = await go_dark(self.stage.lab, self.event.link)
        self._dark = 1
        self._began_ns = seen.t_ns
        self._rest = asyncio.create_task(self._go_on(), name=f"flaps of {self.target}")
        return seen

    async def heal(self) -> Evidence:
        """Light, whatever became of the flaps.

        Raises:
            FaultError: there are flaps fewer than there should have been by now. It may be healed
                before all of them by hand, or because the stream is over.
        """
        if self._rest is None:
            return Evidence(now_ns(), "it did not flap", {})
        due = self._due(now_ns())
        self._rest.cancel()
        (ended,) = await asyncio.gather(self._rest, return_exceptions=True)
        seen = await light_up(self.stage.lab, self.event.link)
        asked = self.event.times
        counts = {"asked": asked, "seen_dark": self._dark, "seen_lit": self._lit}
        said = f"{self.event.link} was dark {self._dark} times of {asked} asked"
        if self._dark < due or self._lit < due:
            why = f": {ended}" if isinstance(ended, Exception) else ""
            raise FaultError(
                f"did not fire as often as it should: {said} and lit again {self._lit} times, when "
                f"{due} were due{why}"
            )
        return Evidence(seen.t_ns, f"{said}; {seen.seen}", {**counts, **seen.data})

    def _due(self, t_ns: int) -> int:
        """Flaps of which even the pause is half over."""
        down_ns, up_ns = self._lengths_ns
        lasted_ns = t_ns - self._began_ns - down_ns - up_ns // 2
        return min(self.event.times, max(0, lasted_ns // (down_ns + up_ns) + 1))

    @property
    def _lengths_ns(self) -> tuple[int, int]:
        return round(self.event.down * NS_PER_S), round(self.event.up * NS_PER_S)

    async def _go_on(self) -> None:
        lab, link = self.stage.lab, self.event.link
        down_ns, up_ns = self._lengths_ns
        for number in range(self.event.times):
            begin_ns = self._began_ns + number * (down_ns + up_ns)
            if number:
                await wait_until_ns(begin_ns)
                cut(lab, link)
                self._dark += not any(carriers(lab, link))
            await wait_until_ns(begin_ns + down_ns)
            restore(lab, link)
            self._lit += all(carriers(lab, link))
