"""A site's tiers are filled with what nobody asks for, several times over."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.scenario.timeline import EvictionStorm

_STORM_S = 30.0


class EvictionStormFault(Fault[EvictionStorm]):
    """Seen by what the site can no longer read of what it could before, which it alone knows."""

    kind = "eviction-storm"
    deadline_s = _STORM_S + 5.0

    async def inject(self) -> Evidence:
        site, rounds = self.event.site, self.event.rounds
        control = self.stage.control(site)
        before = set((await control.get("/held"))["dram"])
        seed = self.stage.rng(self.event.title).getrandbits(32)
        said = await control.patient("/storm", _STORM_S, rounds=rounds, seed=seed)
        if not said["evicted"]:
            raise FaultError(f"nothing of the dram of site {site} had to go")
        gone = len(before - set((await control.get("/held"))["dram"]))
        return Evidence(
            now_ns(),
            f"{said['evicted']} chunks had to go at {site}, of those before the storm "
            f"{gone} of {len(before)}",
            {**said, "before": len(before), "gone": gone},
        )
