"""What a drill plays on: lab and sites, and all that a fault may touch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from geokv.clock import now_ns
from geokv.coordinator.drill.control import SiteControl
from geokv.coordinator.drill.disks import prepare_disk
from geokv.coordinator.drill.log import DrillLog
from geokv.coordinator.fleet import Fleet
from geokv.errors import RunError
from geokv.lab.build import Lab
from geokv.lab.controller import ApnController, Move
from geokv.scenario import Scenario
from geokv.site.settings import SiteSettings
from geokv.units import NS_PER_S

_LOOK_EVERY_S = 0.001
_START_DEADLINE_S = 10.0
_CONNECT_DEADLINE_S = 2.0


class Stage:
    """Lab, fleet and history of one cell of a drill.

    Everything is one asyncio process. Calls into the lab block, are short, and cost no virtual
    time; whatever waits is awaited and has a deadline. Nothing here crosses an emulated link
    but probes and background flows, which live in namespaces of their own.

    Attributes:
        lab: the network as built; ``lab.disturb`` changes a fibre and tells nobody.
        fleet: the processes; ``fleet.sites[name]`` is the life of a site that runs now.
        scenario: of the cell.
        progress: told about steps, for people and for the watchdog.
    """

    def __init__(
        self,
        scenario: Scenario,
        lab: Lab,
        fleet: Fleet,
        log: DrillLog,
        progress: Callable[..., None],
    ) -> None:
        self.scenario = scenario
        self.lab = lab
        self.fleet = fleet
        self.progress = progress
        self._log = log
        self._controls: dict[str, SiteControl] = {}
        self._taken: set[str] = set()

    def rng(self, name: str) -> random.Random:
        """The random stream called ``name`` of this drill: the same for the same seed."""
        return random.Random(f"{self.scenario.seed}/drill/{name}")

    def note(self, op: str, site: str = "", t_ns: int | None = None, **fields: Any) -> int:
        """One event of the history; returns its stamp."""
        return self._log.note(op, site, t_ns, **fields)

    def protection(self) -> ApnController:
        """The network's own controller; what it sees and moves is in the history as ``apn``."""

        def note(move: Move, link: str, data: dict[str, Any]) -> None:
            figures = {key: value for key, value in data.items() if key != "t_ns"}
            self.note("apn", "", data["t_ns"], link=link, phase=move, **figures)

        return ApnController(self.lab, note)

    # -- sites -------------------------------------------------------------------

    @property
    def sites(self) -> list[str]:
        """Names of all sites, whether they run or not."""
        return list(self.fleet.sites)

    def settings(self, site: str) -> SiteSettings:
        """With which the site was last started."""
        return self.fleet.sites[site].settings

    def pid(self, site: str) -> int:
        """Process of the site's present or last life."""
        pid = self.fleet.sites[site].process.pid
        assert pid is not None, "it was started"
        return pid

    def is_up(self, site: str) -> bool:
        """Whether its process is there, as far as the process table says; it may be frozen."""
        return self.fleet.sites[site].process.is_alive()

    def control(self, site: str) -> SiteControl:
        """The control socket of the site's present life."""
        socket = self.settings(site).control_socket
        known = self._controls.get(socket)
        if known is None:
            known = self._controls[socket] = SiteControl(site, socket)
        return known

    def fell(self) -> list[str]:
        """Sites whose process has gone although no fault took it."""
        return [name for name in self.sites if not self.is_up(name) and name not in self._taken]

    async def ended(self, site: str, deadline_s: float, how: str) -> int | None:
        """Wait until the process table has lost a site that a fault ends; note it.

        Args:
            how: ``killed`` or ``ended``; what the history calls it.

        Returns:
            When it was seen; None when it is still there at the deadline.
        """
        process = self.fleet.sites[site].process
        if not await _readable(process.sentinel, deadline_s) or process.is_alive():
            return None
        self._taken.add(site)
        return self.note(
            "life",
            site,
            incarnation=self.settings(site).incarnation,
            phase=how,
            pid=self.pid(site),
            how=f"exit status {process.exitcode}",
        )

    async def start_site(self, site: str, keep: Collection[str] = ()) -> int:
        """Start a site that has ended, at the same address, as a new incarnation.

        It then looks for its peers and tells the directory what it found on its disk, as any
        site that starts does; peers that do not answer are found when they are needed.

        Args:
            keep: ``disk``: what its disk tier holds; ``log``: what it has been told to
                remember over restarts. Without them it finds empty folders.

        Returns:
            When it answered its control socket.

        Raises:
            RunError: it still runs, or it did not come up.
        """
        if self.is_up(site):
            raise RunError(f"site {site} still runs; end it before it is started again")
        old = self.settings(site)
        life = old.incarnation + 1
        base = Path(old.control_socket).parent
        new = replace(old, incarnation=life, control_socket=str(base / f"{site}-{life}.sock"))
        if new.disk is not None and "disk" not in keep:
            new = replace(new, disk=replace(new.disk, folder=str(base / f"disk-{site}-{life}")))
        if new.purge is not None and "log" not in keep:
            log = base / f"purges-{site}-{life}"
            new = replace(new, purge=replace(new.purge, log_path=log))
        prepare_disk(new)
        self.fleet.start_site(new, self.lab.netns(site))
        self._taken.discard(site)
        self.note("life", site, incarnation=life, phase="started", pid=self.pid(site), how="")
        ready_ns = await self.ready(site)
        try:
            await self.control(site).patient("/connect", _CONNECT_DEADLINE_S, first=True)
        except RunError as error:
            self.note("not-connected", site, said=error.message)
        return ready_ns

    async def ready(self, site: str) -> int:
        """Wait until the site answers its control socket; note and return when.

        Raises:
            RunError: it ended, or was not ready in time.
        """
        handle = self.fleet.sites[site]
        until_ns = now_ns() + round(_START_DEADLINE_S * NS_PER_S)
        while not Path(handle.settings.control_socket).exists():
            if not handle.process.is_alive():
                raise RunError(f"site {site} could not start: {handle.last_words()}")
            if now_ns() > until_ns:
                raise RunError(f"site {site} was not ready after {_START_DEADLINE_S:g} s")
            await asyncio.sleep(_LOOK_EVERY_S)
        await self.control(site).get("/stats")
        incarnation = handle.settings.incarnation
        return self.note(
            "life", site, incarnation=incarnation, phase="ready", pid=self.pid(site), how=""
        )

    async def aclose(self) -> None:
        """Close the control connections; sites and lab belong to who made them."""
        for control in self._controls.values():
            await control.aclose()
        self._controls.clear()


async def _readable(descriptor: int, deadline_s: float) -> bool:
    """Whether there is something to read from it by then; nothing is taken."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(deadline_s):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True
