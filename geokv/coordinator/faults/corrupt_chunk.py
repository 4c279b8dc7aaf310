"""Payload is damaged on its way where no checksum of TCP or below can see it."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.meddled import counted, first_seen, running
from geokv.errors import FaultError
from geokv.scenario.timeline import CorruptChunk


class CorruptChunkFault(Fault[CorruptChunk]):
    """Done in the process that serves, by both ends of every route over the link. Seen when the
    first damaged chunk goes out, by the count of who sent it: who receives it may be the one
    that is tested for not noticing."""

    kind = "corrupt-chunk"

    async def inject(self) -> Evidence:
        peers = self._served()
        senders = running(self.stage, list(peers))
        for site in senders:
            seed = self.stage.rng(f"{self.event.title}/{site}").getrandbits(32)
            await self.stage.control(site).post(
                "/chunks",
                name=self.event.title,
                peers=peers[site],
                one_in=self.event.one_in,
                seed=seed,
            )
        seen = await first_seen(self.stage, senders, f"damaged by {self.event.title}")
        said = f"a chunk that {seen.sites[0]} sent over {self.event.link} was damaged"
        return Evidence(seen.first_ns, said, {"by": seen.sites})

    async def heal(self) -> Evidence:
        senders = running(self.stage, list(self._served()))
        for site in senders:
            await self.stage.control(site).post("/chunks", name=self.event.title, peers=[])
        seen = await counted(self.stage, senders, f"damaged by {self.event.title}")
        said = f"nothing is damaged any more; {seen.times} chunks were"
        return Evidence(now_ns(), said, {"damaged": seen.times})

    def _served(self) -> dict[str, list[str]]:
        """Site → the peers that its route to crosses the link."""
        plan, link = self.stage.lab.plan, self.event.link
        found = {
            site: [to for to in plan.sites if to != site and link in plan.path(site, to).links]
            for site in plan.sites
        }
        if not any(found.values()):
            raise FaultError(f"no route goes over {link}")
        return {site: peers for site, peers in found.items() if peers}
