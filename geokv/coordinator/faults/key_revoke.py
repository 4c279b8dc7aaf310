"""A tenant's API key is worth nothing from now on, at every site."""

from __future__ import annotations

from geokv.clock import now_ns
from geokv.coordinator.faults.door import knock
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.meddled import running
from geokv.errors import FaultError
from geokv.scenario.timeline import KeyRevoke

_DOOR_S = 1.0
_UNAUTHORIZED = 401


class KeyRevokeFault(Fault[KeyRevoke]):
    """Seen at the door of every running site: it answers that key with 401."""

    kind = "key-revoke"

    async def inject(self) -> Evidence:
        stage, tenant = self.stage, self.event.tenant
        sites = running(stage, stage.sites)
        for site in sites:
            await stage.control(site).post("/revoke", tenant=tenant)
        answers = {}
        for site in sites:
            key = next(one.api_key for one in stage.settings(site).tenants if one.name == tenant)
            answers[site] = await knock(stage, site, key, _DOOR_S)
        wrong = [site for site in sites if answers[site] != _UNAUTHORIZED]
        if wrong or not sites:
            raise FaultError(f"the doors answer {answers}, not 401")
        return Evidence(now_ns(), f"every site answers {tenant}'s key with 401", {"doors": answers})
