"""What can be seen of the links at any moment: counters, carriers, and what the plan says."""

from __future__ import annotations

from typing import Any

from geokv.clock import now_ns
from geokv.lab import wiring
from geokv.lab.build import Lab
from geokv.lab.netem import read_netem
from geokv.lab.netlink import Netlink
from geokv.units import NS_PER_S


class LinkEyes:
    """Looks at every link of a lab through netlink sockets of its own, so that it may live in
    another thread than the lab. A context manager.

    Raises:
        LabError: from every call, when the lab is closed.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._sockets: dict[str, Netlink] = {}
        self._before: dict[str, tuple[int, list[int]]] = {}

    def __enter__(self) -> LinkEyes:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets.values():
            one.close()
        self._sockets.clear()

    def look(self) -> dict[str, dict[str, Any]]:
        """Link → its state, length and rate now, bytes on the wire since it was built
        (``[a to b, b to a]``, as moved) and the share of the rate they took since the last look.
        """
        return {link: self._one(link) for link in self._lab.plan.links}

    def _one(self, link: str) -> dict[str, Any]:
        plan = self._lab.plan.links[link]
        fibre = self._socket(self._lab.fibre_netns(link))
        sent = [
            read_netem(fibre, wiring.port(goal)).sent_bytes for goal in (plan.b, plan.a)
        ]  # a to b leaves the fibre towards b
        at_ns = now_ns()
        ends = ((plan.a, plan.b), (plan.b, plan.a))
        lit = all(
            self._socket(self._lab.netns(site)).carrier(wiring.to_neighbour(far))
            for site, far in ends
        )
        load = [0.0, 0.0]
        if link in self._before:
            then_ns, then = self._before[link]
            could = plan.rate_bps * max(1, at_ns - then_ns) / NS_PER_S
            load = [round((new - old) * 8 / could, 4) for new, old in zip(sent, then, strict=True)]
        self._before[link] = (at_ns, sent)
        degraded = link in self._lab.plan.set_up
        return {
            "state": "dark" if not lit else "degraded" if degraded else "ok",
            "km": plan.km,
            "rtt_ns": plan.rtt_ns,
            "rate_bps": plan.rate_bps * self._lab.plan.byte_scale,
            "bytes": sent,
            "load": load,
        }

    def _socket(self, netns: str) -> Netlink:
        if netns not in self._sockets:
            self._sockets[netns] = Netlink(netns)
        return self._sockets[netns]
