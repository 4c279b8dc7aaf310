"""A topology compiled to integers: what each qdisc, socket buffer and route is set to.

Links are compiled one by one (``link_plan.py``); routes, and the windows of sites that follow from
them, are of the whole.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import networkx

from geokv.errors import ConfigError
from geokv.lab.link_plan import (
    Line,
    LinkPlan,
    bdp,
    line_of,
    link_of,
    payload_rate,
    tcp_of,
    window_bytes,
)
from geokv.lab.settings import TcpSettings, as_record
from geokv.lab.topology import Link, Topology, ends


@dataclass(frozen=True, slots=True)
class PathPlan:
    """What two sites can expect of the least-km path between them.

    Attributes:
        sites: from the first to the last site, both included.
        rate_bps, payload_rate_bps: of the narrowest link.
        mtu: the smallest on the way.
    """

    sites: tuple[str, ...]
    links: tuple[str, ...]
    km: float
    rtt_ns: int
    rate_bps: int
    payload_rate_bps: int
    mtu: int

    @property
    def bdp_bytes(self) -> int:
        """Bandwidth-delay product of the path."""
        return bdp(self.rate_bps, self.rtt_ns)


@dataclass(frozen=True)
class LabPlan:
    """A whole lab in integers.

    Attributes:
        topology: what it was compiled from.
        sites: site names in the order of the file.
        links: by link id.
        routes: ``routes[a][b]`` is the least-km path from a to b.
        tcp: per site, wide enough for every path from it.
        avoid: links that no route takes unless it has no other way.
        set_up: by link, what its hosts and routers were set up for while a fault makes its
            fibre another (``disturb.py``).
    """

    topology: Topology
    byte_scale: int
    seed: int
    sites: tuple[str, ...]
    links: dict[str, LinkPlan]
    routes: dict[str, dict[str, PathPlan]]
    tcp: dict[str, TcpSettings]
    avoid: frozenset[str] = frozenset()
    set_up: dict[str, tuple[Link, LinkPlan]] = field(default_factory=dict)

    def path(self, a: str, b: str) -> PathPlan:
        """The path from a to b.

        Raises:
            ConfigError: there is no such pair of different sites.
        """
        try:
            return self.routes[a][b]
        except KeyError:
            raise ConfigError(
                f"no path from {a!r} to {b!r} (sites: {', '.join(self.sites)})"
            ) from None

    def replan(self, link: str, **changes: Any) -> LabPlan:
        """This plan with some fields of one link (``km``, ``rate``, ``loss`` …) replaced.

        Raises:
            ConfigError: the change is refused, with its path.
        """
        return compile_plan(
            self.topology.with_link(link, **changes), self.byte_scale, self.seed, self.avoid
        )

    def around(self, avoid: frozenset[str]) -> LabPlan:
        """This plan with its routes clear of some links, and nothing else changed.

        Sites that only those links join keep the path they would have without a word of this.
        """
        links = self.topology.links | {name: drawn for name, (drawn, _) in self.set_up.items()}
        drawn = self.topology.model_copy(update={"links": links})
        other = compile_plan(drawn, self.byte_scale, self.seed, avoid)
        return replace(self, routes=other.routes, avoid=avoid)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The links as plain data for a run folder."""
        return {name: as_record(link) for name, link in self.links.items()}


def compile_plan(
    topology: Topology,
    byte_scale: int = 4,
    seed: int = 0,
    avoid: frozenset[str] = frozenset(),
) -> LabPlan:
    """Compile a topology.

    Args:
        byte_scale: S; line rates are divided by it.
        seed: of every random stream of the network; each direction of each link has its own.
        avoid: links that no route takes unless it has no other way.

    Raises:
        ConfigError: a value that cannot be emulated, with its path.
    """
    if byte_scale < 1:
        raise ConfigError(f"byte_scale: must be ≥ 1, got {byte_scale}")
    lines = {name: line_of(name, link, byte_scale) for name, link in topology.links.items()}
    routes = _routes(topology, lines)
    tcp = {site: _site_tcp(topology, lines, routes, site) for site in topology.sites}
    links = {
        name: link_of(name, topology.links[name], line, tcp, seed) for name, line in lines.items()
    }
    if avoid:  # the windows are those of the network when it is whole
        clear = _routes(topology, lines, avoid)
        routes = {site: {**routes[site], **clear[site]} for site in routes}
    return LabPlan(topology, byte_scale, seed, tuple(topology.sites), links, routes, tcp, avoid)


def _routes(
    topology: Topology, lines: dict[str, Line], avoid: frozenset[str] = frozenset()
) -> dict[str, dict[str, PathPlan]]:
    graph = topology.graph()
    graph.remove_edges_from([ends(name) for name in avoid])
    for _, _, edge in graph.edges(data=True):
        edge["weight"] = edge["km"] + _tie_break(edge["link"])
    routes: dict[str, dict[str, PathPlan]] = {site: {} for site in topology.sites}
    for start, paths in networkx.all_pairs_dijkstra_path(graph, weight="weight"):
        for goal, sites in paths.items():
            if goal == start:
                continue
            names = tuple(graph.edges[a, b]["link"] for a, b in itertools.pairwise(sites))
            rate = min(lines[name].rate_bps for name in names)
            mtu = min(lines[name].mtu for name in names)
            routes[start][goal] = PathPlan(
                sites=tuple(sites),
                links=names,
                km=sum(topology.links[name].km for name in names),
                rtt_ns=sum(2 * lines[name].delay_ns for name in names),
                rate_bps=rate,
                payload_rate_bps=payload_rate(rate, mtu),
                mtu=mtu,
            )
    return routes


def _tie_break(link: str) -> float:
    """Well under a metre, positive and different for every link.

    It makes every shortest path unique, so next hops agree between sites and no route loops,
    even over links of 0 km.
    """
    digest = hashlib.blake2b(link.encode(), digest_size=4).digest()
    return 1e-6 * (1 + int.from_bytes(digest) / 2**32)


def _site_tcp(
    topology: Topology,
    lines: dict[str, Line],
    routes: dict[str, dict[str, PathPlan]],
    site: str,
) -> TcpSettings:
    windows = [
        window_bytes([lines[name] for name in path.links], path.rate_bps, path.rtt_ns)
        for path in routes[site].values()
    ]
    for name in topology.links:
        if site in ends(name):
            line = lines[name]
            windows.append(window_bytes([line], line.rate_bps, 2 * line.delay_ns))
    own = [lines[name].congestion for name in topology.links if site in ends(name)]
    forgets = any(
        topology.links[name].idle_restart for name in topology.links if site in ends(name)
    )
    return tcp_of(own[0] if own else "cubic", max(windows, default=4 * 2**20), forgets)
