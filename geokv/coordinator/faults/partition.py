"""Sites fall apart into groups that do not hear each other; carriers and routes stay."""

from __future__ import annotations

import itertools

from geokv.clock import now_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.hush import Way, lift_silence, see_silence
from geokv.lab.sight import PathSight
from geokv.lab.silence import silence_sites
from geokv.scenario.timeline import Partition


class PartitionFault(Fault[Partition]):
    """Whoever is in no group hears everybody; traffic of one group may pass through another."""

    kind = "partition"
    deadline_s = 10.0

    def __init__(self, event: Partition, stage: Stage) -> None:
        super().__init__(event, stage)
        self._ways: list[Way] = []

    @property
    def target(self) -> str:
        return " | ".join(" ".join(group) for group in self.event.groups)

    async def inject(self) -> Evidence:
        lab = self.stage.lab
        pairs = [
            pair
            for one, other in itertools.combinations(self.event.groups, 2)
            for pair in itertools.product(one, other)
        ]
        for first, second in pairs:
            sight = PathSight(lab, first, second)
            for end, way in enumerate(((first, second), (second, first))):
                self._ways.append(Way(silence_sites(lab, *way), sight, end))
        return await see_silence(self._ways, now_ns(), f"between {self.target}")

    async def heal(self) -> Evidence:
        if not self._ways:
            return Evidence(now_ns(), "nothing was silenced", {})
        return await lift_silence(self._ways, f"between {self.target}")
