"""The process is asked to end, ends, and is started again at once, at the same address."""

from __future__ import annotations

import os
import signal

from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.scenario.timeline import SiteRestart

_END_S = 10.0


class SiteRestartFault(Fault[SiteRestart]):
    """Seen in the process table when the old process is gone; the new one has answered its
    control socket before this counts."""

    kind = "site-restart"
    deadline_s = 25.0

    async def inject(self) -> Evidence:
        stage, site = self.stage, self.event.site
        if not stage.is_up(site):
            raise FaultError(f"site {site} does not run")
        old = stage.pid(site)
        os.kill(old, signal.SIGTERM)
        ended_ns = await stage.ended(site, _END_S, "ended")
        if ended_ns is None:
            raise FaultError(f"process {old} of site {site} did not end within {_END_S:g} s")
        keep = ("disk", "log") if self.event.how == "stale" else ()
        ready_ns = await stage.start_site(site, keep)
        new = stage.pid(site)
        return Evidence(
            ended_ns,
            f"process {old} of site {site} is gone, {new} answers in its place",
            {"old": old, "new": new, "away_ns": ready_ns - ended_ns},
        )
