"""A tenant wants everything of its own forgotten, everywhere."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.scenario.timeline import Purge

_SLACK_S = 2.0


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
            raise FaultError("did not fire: nobody here can purge", "set cache.purge")
        purge_id = self.event.title
        stage.note("purge", site, purge_id=purge_id, tenant=tenant, phase="asked")
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
