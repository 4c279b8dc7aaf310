"""``kill -9``: nothing is flushed, nobody is told, the kernel resets its connections."""

from __future__ import annotations

import os
import signal

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.errors import FaultError
from geokv.scenario.timeline import SiteKill


class SiteKillFault(Fault[SiteKill]):
    """Seen in the process table; back when it answers on its control socket."""

    kind = "site-kill"
    deadline_s = 15.0

    async def inject(self) -> Evidence:
        stage, site = self.stage, self.event.site
        if not stage.is_up(site):
            raise FaultError(f"site {site} does not run")
        pid = stage.pid(site)
        os.kill(pid, signal.SIGKILL)
        ended_ns = await stage.ended(site, self.deadline_s, "killed")
        if ended_ns is None:
            raise FaultError(f"process {pid} of site {site} is still there")
        return Evidence(ended_ns, f"process {pid} of site {site} is gone", {"pid": pid})

    async def heal(self) -> Evidence:
        stage, site = self.stage, self.event.site
        if stage.is_up(site):
            return Evidence(now_ns(), f"site {site} runs", {"pid": stage.pid(site)})
        keep = ("disk", "log") if self.event.keep == "disk" else ()
        ready_ns = await stage.start_site(site, keep)
        pid = stage.pid(site)
        return Evidence(ready_ns, f"site {site} answers as process {pid}", {"pid": pid})
