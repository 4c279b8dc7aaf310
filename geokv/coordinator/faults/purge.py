"""A tenant wants everything of its own forgotten, everywhere."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.scenario.directory import CentralDirectory
from geokv.scenario.timeline import Purge
from geokv.units import NS_PER_S

_SLACK_S = 2.0
_ROUNDING_NS = 12_000_000
"""A site looks every 10 ms for the acknowledgement that it waits for; timers are rounded up to a ms
at both ends."""


class PurgeFault(Fault[Purge]):
    """Done when the site that was asked acknowledges it; what holds from then on is for the
    checkers, not for this."""

    kind = "purge"

    @property
    def deadline_s(self) -> float:  # type: ignore[override]
        """Through a partition it is acknowledged when its bound has passed."""
        purge = self.stage.scenario.cache.purge
        return _SLACK_S + (2 * purge.bound if purge is not None else 0.0)

    async def inject(self) -> Evidence:
        stage, site, tenant = self.stage, self.event.site, self.event.tenant
        if stage.scenario.cache.purge is None:
            raise FaultError("nobody here can purge", "set cache.purge")
        purge_id = self.event.title
        stage.note(
            "purge",
            site,
            purge_id=purge_id,
            tenant=tenant,
            phase="asked",
            within_ns=self._within_ns(),
        )
        said = await stage.control(site).patient(
            "/purge", self.deadline_s - 1, tenant=tenant, purge_id=purge_id
        )
        acked_ns = now_ns()
        stage.note(
            "purge",
            site,
            acked_ns,
            purge_id=purge_id,
            tenant=tenant,
            phase="acked",
            bound_ns=said["bound_ns"],
            by=said["by"],
        )
        how = "all have confirmed" if said["by"] == "confirmed" else "its bound has passed"
        return Evidence(acked_ns, f"site {site} acknowledged the purge of {tenant}: {how}", said)

    def _within_ns(self) -> int:
        """Longest from writing it down to whoever asked knowing that it is acknowledged: the bound,
        and what it takes to find a peer down, since the news goes with a beat
        (docs/consistency.md)."""
        cache, lab = self.stage.scenario.cache, self.stage.lab
        assert cache.purge is not None, "inject has looked"
        assert cache.membership is not None, "purges need heartbeats"
        assert isinstance(cache.directory, CentralDirectory), "purges need an authority"
        away = cache.directory.site != self.event.site
        rtt_ns = lab.plan.path(self.event.site, cache.directory.site).rtt_ns if away else 0
        beats_s = cache.membership.period * cache.membership.misses
        return round((cache.purge.bound + beats_s) * NS_PER_S) + rtt_ns + _ROUNDING_NS
