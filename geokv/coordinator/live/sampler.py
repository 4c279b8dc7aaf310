"""Every fifth of a second: what sites hold and do, and what is on the links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.control import SiteControl
from geokv.coordinator.fleet import Fleet
from geokv.coordinator.live.links import LinkEyes
from geokv.errors import GeokvError, LabError
from geokv.lab.build import Lab

EVERY_NS = 200_000_000
_ANSWER_WITHIN_S = 0.1
_COUNTED = ("total", "free", "cached", "pinned", "reserved")


class Sampler:
    """Tells a ``sample`` again and again, in whichever event loop it runs.

    Args:
        tell: takes the event's name and what it says.
    """

    def __init__(self, lab: Lab, fleet: Fleet, tell: Callable[..., None]) -> None:
        self._lab = lab
        self._fleet = fleet
        self._tell = tell
        self._controls: dict[str, SiteControl] = {}

    async def run(self) -> None:
        """Until it is cancelled, or the lab is closed."""
        try:
            with LinkEyes(self._lab) as eyes:
                while True:
                    await wait_until_ns((now_ns() // EVERY_NS + 1) * EVERY_NS)
                    await self._sample(eyes)
        except LabError:
            return
        finally:
            for control in self._controls.values():
                await control.aclose()

    async def _sample(self, eyes: LinkEyes) -> None:
        links = eyes.look()
        names = list(self._fleet.sites)
        sites = dict(zip(names, await asyncio.gather(*map(self._site, names)), strict=True))
        under_way = sum(site.get("under_way", 0) for site in sites.values())
        self._tell("sample", in_flight=under_way, sites=sites, links=links)

    async def _site(self, name: str) -> dict[str, Any]:
        """A site that is away or frozen is said to be, and tells nothing else."""
        handle = self._fleet.sites[name]
        if not handle.process.is_alive():
            return {"up": False, "answers": False}
        socket = handle.settings.control_socket
        if socket not in self._controls:
            self._controls[socket] = SiteControl(name, socket)
        control = self._controls[socket]
        try:
            pools = await control.get("/pools", _ANSWER_WITHIN_S)
            loop = (await control.get("/stats", _ANSWER_WITHIN_S))["loop"]
        except GeokvError:
            return {"up": True, "answers": False}
        waiting = loop["waiting"] + loop["loading"]
        return {
            "up": True,
            "answers": True,
            "running": loop["running"],
            "waiting": waiting,
            "under_way": loop["running"] + waiting,
            "pools": {
                tier: {count: pool[count] for count in _COUNTED} for tier, pool in pools.items()
            },
        }
