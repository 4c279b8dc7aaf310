"""Where the parts of a built network are: namespaces, addresses, sockets into the kernel."""

from __future__ import annotations

import os

from geokv.errors import ConfigError, LabError
from geokv.lab import wiring
from geokv.lab.hosts import SiteHost
from geokv.lab.link_plan import LinkPlan
from geokv.lab.netem import QdiscState, read_netem
from geokv.lab.netlink import Netlink
from geokv.lab.plan import LabPlan
from geokv.lab.settings import TcpSettings
from geokv.lab.sysctl import read_tcp


class Places:
    """Looks things up; ``Lab`` puts them there and takes them away.

    Attributes:
        plan: what the network is now.
    """

    def __init__(self, plan: LabPlan) -> None:
        self.plan = plan
        self.wiring = wiring.wire(plan)
        self._hosts: dict[str, SiteHost] = {}
        self._namespaces: dict[tuple[str, str], int] = {}
        self._netlinks: dict[tuple[str, str], Netlink] = {}

    def netns(self, site: str) -> str:
        """Path of a site's namespace, for ``in_netns``."""
        return f"/proc/{self.host(site).pid}/ns/net"

    def access_netns(self, site: str) -> str:
        """Path of the namespace of a site's clients; valid while this process lives."""
        self._known_site(site)
        return self._path("access", site)

    def fibre_netns(self, link: str) -> str:
        """Path of a link's middle namespace; valid while this process lives."""
        self.link_plan(link)
        return self._path("fibre", link)

    def host(self, site: str) -> SiteHost:
        """The Mininet host of a site."""
        self._known_site(site)
        return self._hosts[site]

    def address(self, site: str) -> str:
        """A site's own address, reachable from every site and every access namespace."""
        self._known_site(site)
        return self.wiring.sites[site].address

    def access_address(self, site: str) -> str:
        """Address of a site's clients."""
        self._known_site(site)
        return self.wiring.sites[site].access_address

    def link_address(self, link: str, site: str) -> str:
        """Address of a site's end of a link: traffic to it takes this link and no other."""
        self.link_plan(link)
        return self.wiring.links[link].addresses[wiring.side(link, site)]

    def link_plan(self, link: str) -> LinkPlan:
        """The plan of a link.

        Raises:
            ConfigError: no such link.
        """
        try:
            return self.plan.links[link]
        except KeyError:
            known = ", ".join(self.plan.links) or "none"
            raise ConfigError(f"links.{link}: no such link (links: {known})") from None

    def tcp(self, site: str) -> TcpSettings:
        """TCP settings of a site's namespace as the kernel holds them."""
        return read_tcp(self.netns(site))

    def qdiscs(self, link: str) -> tuple[QdiscState, QdiscState]:
        """State of a link's two netem qdiscs: a to b, then b to a."""
        plan = self.link_plan(link)
        fibre = self._netlinks["fibre", link]
        return read_netem(fibre, wiring.port(plan.b)), read_netem(fibre, wiring.port(plan.a))

    def site_netlink(self, site: str) -> Netlink:
        """Netlink in a site's namespace."""
        self._known_site(site)
        return self._netlinks["site", site]

    def fibre_netlink(self, link: str) -> Netlink:
        """Netlink in a link's middle namespace.

        Raises:
            LabError: the lab is closed.
        """
        self.fibre_netns(link)
        return self._netlinks["fibre", link]

    def _path(self, kind: str, name: str) -> str:
        try:
            return f"/proc/{os.getpid()}/fd/{self._namespaces[kind, name]}"
        except KeyError:
            raise LabError(f"the lab is closed: no {kind} namespace of {name}") from None

    def _known_site(self, site: str) -> None:
        if site not in self.wiring.sites:
            raise ConfigError(f"no site is named {site!r} (sites: {', '.join(self.plan.sites)})")
        if site not in self._hosts:
            raise LabError(f"the lab is closed: no namespace of {site}")
