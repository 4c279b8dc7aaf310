"""A plan made real: namespaces, cables, fibres, routes, TCP settings.

Each site is a Mininet host. Each link is a *fibre*, a namespace of its own whose bridge joins
the two ends and whose two egress interfaces carry netem: a site never holds an impairment itself,
where back-pressure and immediate retransmission would falsify it. Clients of a site live in its
*access* namespace behind an unimpaired cable.

Access and fibre namespaces are held by descriptors of this process and vanish with it; only the
hosts' shells could outlive it, and they are in the journal.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from geokv.lab import wiring
from geokv.lab.capabilities import NEEDED, require
from geokv.lab.disturb import disturbed
from geokv.lab.enter import new_netns
from geokv.lab.hosts import SiteHost, require_mininet_tools
from geokv.lab.journal import Journal
from geokv.lab.link_plan import LinkPlan
from geokv.lab.netem import apply_netem
from geokv.lab.netlink import Netlink
from geokv.lab.offloads import set_offloads
from geokv.lab.places import Places
from geokv.lab.plan import LabPlan
from geokv.lab.sysctl import (
    prepare_namespace,
    raise_machine_limits,
    restore_machine_limits,
)
from geokv.lab.topology import ends


class _Hop(NamedTuple):
    """What a route is made of."""

    link: str
    mtu: int
    congestion: str


def _next_hop(plan: LabPlan, site: str, goal: str) -> _Hop:
    path = plan.routes[site][goal]
    return _Hop(path.links[0], path.mtu, plan.links[path.links[0]].tcp.congestion)


class Lab(Places):
    """A built network; use as a context manager.

    Attributes:
        plan: what the network is now; ``change`` replaces it.
    """

    def __init__(self, plan: LabPlan, journal: Journal) -> None:
        super().__init__(plan)
        self.journal = journal
        self._own_journal = False
        self._limits: dict[int, Any] = {}

    @classmethod
    def build(cls, plan: LabPlan, journal: Journal | None = None) -> Lab:
        """Build everything the plan says, and read it back.

        Args:
            journal: where creations are written first; one of its own by default.

        Raises:
            LabError: the kernel or a tool lacks something, or a value reads back differently.
                Nothing is left behind.
        """
        require_mininet_tools()
        require(*NEEDED)
        lab = cls(plan, journal or Journal.open())
        lab._own_journal = journal is None
        try:
            lab._build()
        except BaseException:
            lab.close()
            raise
        return lab

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take everything down; harmless when repeated."""
        for link in self._netlinks.values():
            link.close()
        self._netlinks.clear()
        for host in self._hosts.values():
            host.stop()
        self._hosts.clear()
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces.clear()
        restore_machine_limits(self.journal, self._limits)
        self._limits = {}
        if self._own_journal:
            self.journal.close()

    # Live change

    def change(self, link: str, **changes: Any) -> LinkPlan:
        """Change fields of a link (``km``, ``rate``, ``loss`` …) while everything runs.

        Queued packets stay queued. TCP buffers and routes follow; connections that exist keep
        their congestion control. Every value is read back.

        Raises:
            ConfigError: refused, with its path; nothing was touched.
            LabError: the kernel refused.
        """
        self.link_plan(link)
        self._become(self.plan.replan(link, **changes))
        return self.plan.links[link]

    def disturb(self, link: str, **changes: Any) -> LinkPlan:
        """Change a fibre as a fault does: hosts, routes and queues are not told.

        Raises:
            ConfigError: refused, with its path, or not a property of the fibre.
            LabError: the kernel refused.
        """
        self.link_plan(link)
        self._become(disturbed(self.plan, link, **changes))
        return self.plan.links[link]

    def reroute(self, avoid: frozenset[str]) -> int:
        """Move the routes clear of some links where there is another way; back for none.

        Returns:
            How many routes of sites to other sites changed.

        Raises:
            ConfigError: no such link.
            LabError: the kernel refused.
        """
        for link in sorted(avoid):
            self.link_plan(link)
        return self._become(self.plan.around(avoid))

    def _become(self, new: LabPlan) -> int:
        """Set what differs from the plan so far; how many routes that was."""
        old, moved = self.plan, 0
        for site in new.sites:
            if new.tcp[site] != old.tcp[site]:
                self._set_tcp(new, site)
        for name, planned in new.links.items():
            if planned != old.links[name]:
                self._set_link(planned, old.links[name])
        for site in new.sites:
            moved += self._set_routes(new, site, old)
        self.plan = new
        return moved

    # Building

    def _build(self) -> None:
        self._limits = raise_machine_limits(self.journal)
        for site in self.plan.sites:
            self._build_site(site)
        for index, link in enumerate(self.plan.links):
            self._build_link(link, index)
        for site in self.plan.sites:
            self._set_routes(self.plan, site, None)
        for (kind, name), netlink in self._netlinks.items():
            netlink.wait_up(*self._interfaces(kind, name))

    def _interfaces(self, kind: str, name: str) -> list[str]:
        if kind == "access":
            return [wiring.SITE_IN_ACCESS]
        if kind == "fibre":
            return [wiring.BRIDGE, *(wiring.port(site) for site in ends(name))]
        links = [link for link in self.plan.links if name in ends(link)]
        return [
            wiring.ACCESS_IN_SITE,
            *(wiring.to_neighbour(wiring.other_end(link, name)) for link in links),
        ]

    def _build_site(self, site: str) -> None:
        self._hosts[site] = SiteHost(site, self.journal)
        self._namespaces["access", site] = new_netns()
        self._set_tcp(self.plan, site)
        wires = self.wiring.sites[site]
        mtu = self._access_mtu(site)
        here = self._netlinks["site", site] = Netlink(self.netns(site))
        there = self._netlinks["access", site] = Netlink(self._path("access", site))
        here.add_veth(
            wiring.ACCESS_IN_SITE,
            wiring.SITE_IN_ACCESS,
            self._namespaces["access", site],
            mtu,
            wires.access_macs,
        )
        for link, name, address, peer, mac in (
            (here, wiring.ACCESS_IN_SITE, wires.access_gateway, wires.access_address, 1),
            (there, wiring.SITE_IN_ACCESS, wires.access_address, wires.access_gateway, 0),
        ):
            link.set_link("lo", up=True)
            link.set_link(name, up=True)
            link.add_address(name, address, 30)
            link.add_neighbour(name, peer, wires.access_macs[mac])
        here.add_address("lo", wires.address, 32)
        there.set_route("0.0.0.0", 0, wires.access_gateway)

    def _build_link(self, link: str, index: int) -> None:
        plan = self.plan.links[link]
        self._namespaces["fibre", link] = new_netns()
        path = self._path("fibre", link)
        prepare_namespace(path, None, forward=False)
        fibre = self._netlinks["fibre", link] = Netlink(path)
        fibre.add_bridge(wiring.BRIDGE)
        fibre.set_link(wiring.BRIDGE, up=True)
        wires = self.wiring.links[link]
        for end, site in enumerate((plan.a, plan.b)):
            here = self._netlinks["site", site]
            name = wiring.to_neighbour(wiring.other_end(link, site))
            macs = (wires.macs[end], wiring.port_macs(index)[end])
            here.add_veth(
                name,
                wiring.port(site),
                self._namespaces["fibre", link],
                plan.mtu,
                macs,
                wiring.indices(index, end),
            )
            fibre.set_link(wiring.port(site), master=wiring.BRIDGE)
            fibre.set_link(wiring.port(site), up=True)
            here.set_link(name, up=True)
            here.add_address(name, wires.addresses[end], 30)
            here.add_neighbour(name, wires.addresses[1 - end], wires.macs[1 - end])
        self._set_link(plan, None)

    def _set_link(self, plan: LinkPlan, old: LinkPlan | None) -> None:
        fibre = self._netlinks["fibre", plan.link]
        if old is not None and old.mtu != plan.mtu:
            for site in (plan.a, plan.b):
                name = wiring.to_neighbour(wiring.other_end(plan.link, site))
                self._netlinks["site", site].set_link(name, mtu=plan.mtu)
                fibre.set_link(wiring.port(site), mtu=plan.mtu)
                self._netlinks["site", site].set_link(
                    wiring.ACCESS_IN_SITE, mtu=self._access_mtu(site)
                )
        if old is None or old.offloads != plan.offloads:
            for site in (plan.a, plan.b):
                name = wiring.to_neighbour(wiring.other_end(plan.link, site))
                set_offloads(self.netns(site), name, plan.offloads)
                set_offloads(self._path("fibre", plan.link), wiring.port(site), plan.offloads)
        apply_netem(fibre, wiring.port(plan.b), plan.forward)
        apply_netem(fibre, wiring.port(plan.a), plan.backward)

    def _set_tcp(self, plan: LabPlan, site: str) -> None:
        prepare_namespace(self.netns(site), plan.tcp[site], forward=True)
        prepare_namespace(self._path("access", site), plan.tcp[site], forward=False)

    def _set_routes(self, plan: LabPlan, site: str, old: LabPlan | None) -> int:
        """Routes to every other site, or only those that differ from the old plan's: how many."""
        here = self._netlinks["site", site]
        moved = 0
        for goal in plan.routes[site]:
            hop = _next_hop(plan, site, goal)
            if old is not None and hop == _next_hop(old, site, goal):
                continue
            far = wiring.other_end(hop.link, site)
            here.set_route(
                self.wiring.sites[goal].network,
                24,
                self.wiring.links[hop.link].addresses[wiring.side(hop.link, far)],
                source=self.wiring.sites[site].address,
                mtu=hop.mtu,
                congestion=hop.congestion,
            )
            moved += 1
        return moved

    def _access_mtu(self, site: str) -> int:
        mtus = [link.mtu for name, link in self.plan.links.items() if site in ends(name)]
        return max(mtus, default=9000)
