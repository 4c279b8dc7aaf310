"""What happens to events on their way to the directory, at every site they start from."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.meddled import counted, first_seen
from geokv.coordinator.faults.table import senders, table_site
from geokv.errors import FaultError
from geokv.scenario.timeline import Event

W = TypeVar("W", bound=Event)


class EventWayFault(Fault[W]):
    """Seen when it has happened to the first event, by the count of the site that sent it: of
    what was lost nobody else knows.

    Attributes:
        happens: how it is counted.
        words: what happened to an event, for people.
    """

    deadline_s = 10.0
    alone = True
    happens: ClassVar[str]
    words: ClassVar[str]

    @property
    def target(self) -> str:
        return table_site(self.stage)

    def setting(self, on: bool) -> dict[str, Any]:
        """What is asked of the way."""
        raise NotImplementedError

    async def inject(self) -> Evidence:
        sites = senders(self.stage)
        if not sites:
            raise FaultError("no event travels, all sites but the table's are down")
        for site in sites:
            seed = self.stage.rng(f"events/{site}").getrandbits(32)
            await self.stage.control(site).post("/events", seed=seed, **self.setting(True))
        seen = await first_seen(self.stage, sites, self.happens)
        said = f"an event of {seen.sites[0]} {self.words}"
        return Evidence(seen.first_ns, said, {"by": seen.sites})

    async def heal(self) -> Evidence:
        sites = senders(self.stage)
        for site in sites:
            await self.stage.control(site).post("/events", **self.setting(False))
        seen = await counted(self.stage, sites, self.happens)
        said = f"events arrive as they are sent; {seen.times} times one {self.words}"
        return Evidence(now_ns(), said, {"times": seen.times})
