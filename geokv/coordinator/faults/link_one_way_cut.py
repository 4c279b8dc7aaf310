"""One direction of a link carries nothing, and the other knows nothing of it."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.hush import Way, lift_silence, see_silence
from geokv.errors import FaultError, LabError
from geokv.lab.sight import LinkSight
from geokv.lab.silence import silence_link
from geokv.scenario.timeline import LinkOneWayCut


class LinkOneWayCutFault(Fault[LinkOneWayCut]):
    """Seen by frames that are lost one way and cross the other."""

    kind = "link-one-way-cut"
    _way: Way | None = None

    @property
    def _what(self) -> str:
        return f"from {self.event.from_} over {self.event.link}"

    async def inject(self) -> Evidence:
        lab, link, sender = self.stage.lab, self.event.link, self.event.from_
        sight = LinkSight(lab, link)
        end = 0 if lab.link_plan(link).a == sender else 1
        self._way = Way(silence_link(lab, link, sender), sight, end)
        seen = await see_silence([self._way], now_ns(), self._what)
        try:
            await sight.until_open(1 - end, deadline_s=1.0)
        except LabError as error:
            raise FaultError(f"the other way is shut too: {error.message}") from None
        return seen

    async def heal(self) -> Evidence:
        if self._way is None:
            return Evidence(now_ns(), "nothing was silenced", {})
        return await lift_silence([self._way], self._what)
