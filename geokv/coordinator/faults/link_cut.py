"""The fibre is dug up: both ends lose their carrier, what is on the way is lost."""

from __future__ import annotations

import asyncio

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.lab.outage import carriers, cut, restore
from geokv.scenario.timeline import LinkCut

_LOOK_EVERY_S = 0.001


class LinkCutFault(Fault[LinkCut]):
    """Seen by the carrier at both sites' interfaces."""

    kind = "link-cut"

    async def inject(self) -> Evidence:
        cut(self.stage.lab, self.event.link)
        return await self._seen(False)

    async def heal(self) -> Evidence:
        restore(self.stage.lab, self.event.link)
        return await self._seen(True)

    async def _seen(self, light: bool) -> Evidence:
        link = self.event.link
        while (found := carriers(self.stage.lab, link)) != (light, light):
            await asyncio.sleep(_LOOK_EVERY_S)
        word = "a carrier" if light else "no carrier"
        return Evidence(
            now_ns(),
            f"both ends of {link} have {word}",
            dict(zip(("carrier_a", "carrier_b"), found, strict=True)),
        )
