"""SIGSTOP: the kernel keeps the site's connections open, takes what comes, and nobody answers."""

from __future__ import annotations

import asyncio
import os
import signal

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence, Fault
from geokv.coordinator.faults.procs import state_of
from geokv.errors import FaultError
from geokv.scenario.timeline import SiteFreeze

_LOOK_EVERY_S = 0.001


class SiteFreezeFault(Fault[SiteFreeze]):
    """Seen in the process table: the state of the process is T, and later another."""

    kind = "site-freeze"
    alone = True
    _frozen = 0

    async def inject(self) -> Evidence:
        stage, site = self.stage, self.event.site
        if not stage.is_up(site):
            raise FaultError(f"site {site} does not run")
        self._frozen = pid = stage.pid(site)
        os.kill(pid, signal.SIGSTOP)
        while (state := state_of(pid)) != "T":
            if not state:
                raise FaultError(f"process {pid} of site {site} has ended")
            await asyncio.sleep(_LOOK_EVERY_S)
        return Evidence(now_ns(), f"process {pid} of site {site} is stopped", {"pid": pid})

    async def heal(self) -> Evidence:
        pid, site = self._frozen, self.event.site
        if not pid:
            raise FaultError(f"site {site} was never stopped")
        if state_of(pid) in ("", "Z") or pid != self.stage.pid(site):
            # Killed meanwhile, which ends a freeze, too.
            return Evidence(now_ns(), f"process {pid} of site {site} is gone", {"pid": pid})
        os.kill(pid, signal.SIGCONT)
        while state_of(pid) == "T":
            await asyncio.sleep(_LOOK_EVERY_S)
        return Evidence(now_ns(), f"process {pid} of site {site} runs again", {"pid": pid})
