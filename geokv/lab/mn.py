"""The same topologies as plain Mininet ones, for the ``mn`` command (see topologies/mn_topos.py).

Sites are hosts; each fibre is a switch in a namespace of its own: two ports, one bridge, our
netem on both. ``mn`` decides what happens to them; a run uses ``geokv.lab.build`` instead.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from geokv.errors import ConfigError
from geokv.lab import wiring
from geokv.lab.hosts import few_files
from geokv.lab.link_plan import LinkPlan
from geokv.lab.netem import apply_netem
from geokv.lab.netlink import Netlink
from geokv.lab.plan import LabPlan, compile_plan
from geokv.lab.profiles import data_folders
from geokv.lab.sysctl import prepare_namespace
from geokv.lab.topology import load_topology

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports distutils
    from mininet.node import Host, Switch
    from mininet.topo import Topo

BYTE_SCALE_VARIABLE = "GEOKV_BYTE_SCALE"


class SiteNode(Host):  # type: ignore[misc]
    """A site: forwards, and has a route to every other site."""

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        return super()._popen(few_files(cmd), **params)

    def config(self, plan: LabPlan | None = None, **params: Any) -> dict[str, Any]:
        """Mininet's own configuration, then TCP settings and least-km routes."""
        result: dict[str, Any] = super().config(**params)
        if plan is None:
            return result
        path = f"/proc/{self.pid}/ns/net"
        prepare_namespace(path, plan.tcp[self.name], forward=True)
        wires = wiring.wire(plan)
        with Netlink(path) as link:
            for far in self._neighbours(plan):
                link.set_link(self._towards(far, plan), mtu=self._link(far, plan).mtu)
            for goal, way in plan.routes[self.name].items():
                first = way.sites[1]
                link.set_route(
                    wires.sites[goal].address,
                    32,
                    wires.sites[first].address,
                    source=wires.sites[self.name].address,
                    mtu=way.mtu,
                    congestion=self._link(first, plan).tcp.congestion,
                    direct=self._towards(first, plan),
                )
        return result

    def _neighbours(self, plan: LabPlan) -> list[str]:
        return [
            link.b if link.a == self.name else link.a
            for link in plan.links.values()
            if self.name in (link.a, link.b)
        ]

    def _link(self, far: str, plan: LabPlan) -> LinkPlan:
        return next(link for link in plan.links.values() if {link.a, link.b} == {self.name, far})

    def _towards(self, far: str, plan: LabPlan) -> str:
        port = self._neighbours(plan).index(far)
        return f"{self.name}-eth{port}"


class Fibre(Switch):  # type: ignore[misc]
    """A link's middle: a bridge of two ports, netem on both of them."""

    def __init__(self, name: str, link: LinkPlan, **params: Any) -> None:
        self.link_plan = link
        super().__init__(name, **params)

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        return super()._popen(few_files(cmd), **params)

    def start(self, controllers: list[Any]) -> None:
        """Join the two ports and impair them; there is nothing for a controller to do."""
        path = f"/proc/{self.pid}/ns/net"
        prepare_namespace(path, None, forward=False)
        ports = [name for name in self.intfNames() if name != "lo"]
        plan = self.link_plan
        with Netlink(path) as link:
            link.add_bridge(wiring.BRIDGE)
            link.set_link(wiring.BRIDGE, up=True)
            for port in ports:
                link.set_link(port, mtu=plan.mtu, master=wiring.BRIDGE)
                link.set_link(port, up=True)
            apply_netem(link, ports[0], plan.backward)
            apply_netem(link, ports[1], plan.forward)
            link.wait_up(wiring.BRIDGE, *ports)


class GeoTopo(Topo):  # type: ignore[misc]
    """A geokv topology as a Mininet one."""

    def build(self, source: str = "pair") -> None:
        """Add a host per site and a fibre per link."""
        scale = os.environ.get(BYTE_SCALE_VARIABLE, "1")
        if not scale.isdigit():
            raise ConfigError(f"{BYTE_SCALE_VARIABLE} must be a whole number ≥ 1, got {scale!r}")
        plan = compile_plan(load_topology(source), byte_scale=int(scale))
        wires = wiring.wire(plan)
        for site in plan.sites:
            self.addHost(site, cls=SiteNode, ip=f"{wires.sites[site].address}/32", plan=plan)
        for number, link in enumerate(plan.links.values(), start=1):
            fibre = self.addSwitch(
                f"f{number}", cls=Fibre, dpid=f"{number:x}", inNamespace=True, link=link
            )
            self.addLink(link.a, fibre)
            self.addLink(link.b, fibre)


def shipped_topos() -> dict[str, Any]:
    """``topos`` for ``mn --custom``: one entry per shipped YAML file."""
    names = {path.stem for folder in data_folders("topologies") for path in folder.glob("*.yaml")}
    return {name: _maker(name) for name in sorted(names)}


def _maker(name: str) -> Any:
    def make() -> GeoTopo:
        return GeoTopo(source=name)

    return make
