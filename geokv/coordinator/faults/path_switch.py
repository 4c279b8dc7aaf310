"""The optical path moves to another fibre: no light for a moment, then another length."""

from __future__ import annotations

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.light import go_dark, light_up
from geokv.errors import FaultError
from geokv.lab.sight import LinkSight
from geokv.scenario.timeline import PathSwitch
from geokv.units import NS_PER_S

_TIME_SLACK_NS = 5_000
_LOOKS = 200
_SEEN_WITHIN_S = 5.0


class PathSwitchFault(Fault[PathSwitch]):
    """Seen by the carriers and by the round trip afterwards. It took effect when the light went,
    and has healed when the old way, to which it goes back likewise, carries again."""

    kind = "path-switch"
    alone = True
    _km: float | None = None

    def __init__(self, event: PathSwitch, stage: Stage) -> None:
        super().__init__(event, stage)
        self.deadline_s = event.outage + 2 * _SEEN_WITHIN_S

    async def inject(self) -> Evidence:
        km = self.stage.lab.plan.topology.links[self.event.link].km
        if km == self.event.km:
            raise FaultError(f"link {self.event.link} is {km:g} km long already")
        self._km = km
        dark, back = await self._switch(self.event.km)
        return Evidence(dark.t_ns, back.seen, {**back.data, "back_ns": back.t_ns})

    async def heal(self) -> Evidence:
        if self._km is None:
            return Evidence(now_ns(), "the path was not switched", {})
        dark, back = await self._switch(self._km)
        return Evidence(back.t_ns, back.seen, {**back.data, "dark_ns": dark.t_ns})

    async def _switch(self, km: float) -> tuple[Evidence, Evidence]:
        """Over to a way of that length; what was seen of the light going, and of the new way."""
        lab, link = self.stage.lab, self.event.link
        if self.event.outage:
            dark = await go_dark(lab, link)
            await wait_until_ns(dark.t_ns + round(self.event.outage * NS_PER_S))
            plan = lab.disturb(link, km=km)
            back = await light_up(lab, link)
        else:
            plan = lab.disturb(link, km=km)
            dark = back = Evidence(now_ns(), "", {})
        trip_ns = await self._round_trip_ns(plan.rtt_ns)
        data = {"km": km, "rtt_ns": trip_ns, "rtt_planned_ns": plan.rtt_ns}
        said = f"{link} is {km:g} km long, its round trip {trip_ns / 1000:.0f} µs"
        return dark, Evidence(back.t_ns, said, {**back.data, **data})

    async def _round_trip_ns(self, planned_ns: int) -> int:
        """The first round trip that cannot be of a shorter way.

        What was sent before a change holds up what comes after it, so a longer one is no sign
        of anything; the kernel's settings were read back.

        Raises:
            FaultError: every frame is faster than the way, or lost.
        """
        with LinkSight(self.stage.lab, self.event.link) as sight:
            for _ in range(_LOOKS):
                trip_ns = await sight.round_trip_ns(1)
                if trip_ns is not None and trip_ns >= planned_ns - _TIME_SLACK_NS:
                    return trip_ns
        raise FaultError(f"link {self.event.link} is still the old way")
