"""The controller of an all-photonic network: routes leave a link that lost its light.

It watches each fibre's ports as the gear of the network does, waits the link's protection time,
and then moves every site's routes at once to the shortest ways that are left. It is out of band:
what it says to the sites takes no time and crosses no link. When the light is back the routes
come back after ``wait_to_restore`` if the link is revertive, and stay otherwise. A link that
only drops packets in silence has its light: nobody moves anything.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Literal

from geokv.clock import now_ns, wait_until_ns
from geokv.errors import LabError
from geokv.lab import wiring
from geokv.lab.build import Lab
from geokv.lab.enter import in_netns
from geokv.lab.topology import ends
from geokv.units import NS_PER_S

_RTMGRP_LINK = 1

Move = Literal["dark", "lit", "moved", "moved-back", "no-protection", "no-other-way"]
Note = Callable[[Move, str, dict[str, Any]], None]
"""Told what happened, to which link, and the figures: ``t_ns`` and what belongs to it."""


class ApnController:
    """Moves routes while it is entered; use as an async context manager.

    Args:
        note: told at once about every step, in the event loop.
        wait_to_restore_s: how long a light has to be back before routes come back to it.

    Attributes:
        avoiding: links that routes have left.
    """

    def __init__(self, lab: Lab, note: Note, *, wait_to_restore_s: float = 0.0) -> None:
        self.avoiding: frozenset[str] = frozenset()
        self._lab = lab
        self._note = note
        self._wait_ns = round(wait_to_restore_s * NS_PER_S)
        self._lit = dict.fromkeys(lab.plan.links, True)
        self._sockets: dict[str, socket.socket] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._problem: LabError | None = None

    async def __aenter__(self) -> ApnController:
        loop = asyncio.get_running_loop()
        for link in self._lab.plan.links:
            with in_netns(self._lab.fibre_netns(link)):
                watch = socket.socket(
                    socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
                )
            self._sockets[link] = watch
            watch.bind((0, _RTMGRP_LINK))
            loop.add_reader(watch, self._look, link)
        return self

    async def __aexit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for watch in self._sockets.values():
            loop.remove_reader(watch)
            watch.close()
        self._sockets.clear()
        for timer in self._timers.values():
            timer.cancel()
        await asyncio.gather(*self._timers.values(), return_exceptions=True)
        self._timers.clear()
        if self._problem is not None:
            raise self._problem

    def _look(self, link: str) -> None:
        """Something about a fibre's interfaces changed; what it was, the kernel is asked."""
        while True:
            try:
                self._sockets[link].recv(65536)
            except BlockingIOError:
                break
        fibre = self._lab.fibre_netlink(link)
        lit = all(fibre.carrier(wiring.port(site)) for site in ends(link))
        if lit == self._lit[link]:
            return
        self._lit[link] = lit
        self._note("lit" if lit else "dark", link, {"t_ns": now_ns()})
        if link in self._timers:
            self._timers.pop(link).cancel()
        plan = self._lab.link_plan(link)
        if lit:
            if link in self.avoiding and plan.revertive:
                self._start(link, self._wait_ns, leave=False)
        elif plan.protection_ns is None:
            self._note("no-protection", link, {"t_ns": now_ns()})
        elif link not in self.avoiding:
            self._start(link, plan.protection_ns, leave=True)

    def _start(self, link: str, wait_ns: int, *, leave: bool) -> None:
        self._timers[link] = asyncio.get_running_loop().create_task(
            self._move(link, now_ns() + wait_ns, leave), name=f"protection of {link}"
        )

    async def _move(self, link: str, at_ns: int, leave: bool) -> None:
        await wait_until_ns(at_ns)
        self.avoiding = self.avoiding | {link} if leave else self.avoiding - {link}
        try:
            routes = self._lab.reroute(self.avoiding)
        except LabError as error:  # nobody waits for this task: who leaves the controller is told
            self._problem = error
            return
        what: Move = "moved" if leave else "moved-back"
        if leave and self._needed(link):
            what = "no-other-way"
        self._note(what, link, {"t_ns": now_ns(), "routes": routes})

    def _needed(self, link: str) -> bool:
        """Whether sites have no way to each other but this link."""
        routes = self._lab.plan.routes.values()
        return any(link in path.links for paths in routes for path in paths.values())
