"""Names and addresses of a lab: one rule each, computed from the plan alone.

site i           10.(i/256).(i%256).0/24
                 .1 the site's own address (on lo), .5 its side of the access cable, .6 clients
link j           10.128.0.0 + 4j, a /30: .1 is side a, .2 is side b
in a site        ``to-<neighbour>`` per link, ``access``
in access        ``site``
in a fibre       ``port-<site>`` on both sides, joined by the bridge ``glass``
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

from geokv.errors import ConfigError
from geokv.lab.plan import LabPlan
from geokv.lab.topology import ends

MOST_SITES = 4096
MOST_LINKS = 2**20
ACCESS_IN_SITE = "access"
SITE_IN_ACCESS = "site"
BRIDGE = "glass"
_FIRST_INDEX, _FIRST_PORT_INDEX = 100, 10


@dataclass(frozen=True, slots=True)
class LinkWiring:
    """Addresses and hardware addresses of a link's two ends, a then b."""

    addresses: tuple[str, str]
    macs: tuple[str, str]


@dataclass(frozen=True, slots=True)
class SiteWiring:
    """A site's own network."""

    network: str
    address: str
    access_gateway: str
    access_address: str
    access_macs: tuple[str, str]


@dataclass(frozen=True)
class Wiring:
    """All addresses of a lab."""

    sites: dict[str, SiteWiring]
    links: dict[str, LinkWiring]


def wire(plan: LabPlan) -> Wiring:
    """Addresses for a plan.

    Raises:
        ConfigError: more sites or links than there are addresses.
    """
    if len(plan.sites) > MOST_SITES or len(plan.links) > MOST_LINKS:
        raise ConfigError(f"at most {MOST_SITES} sites and {MOST_LINKS} links fit into a lab")
    sites = {name: _site(index) for index, name in enumerate(plan.sites)}
    links = {name: _link(index) for index, name in enumerate(plan.links)}
    return Wiring(sites, links)


def to_neighbour(site: str) -> str:
    """A site's interface towards a neighbour."""
    return f"to-{site}"


def port(site: str) -> str:
    """A fibre's interface on a site's side."""
    return f"port-{site}"


def other_end(link: str, site: str) -> str:
    """The site at the far end of a link."""
    a, b = ends(link)
    return b if site == a else a


def side(link: str, site: str) -> int:
    """0 for side a of the link, 1 for side b."""
    return 0 if site == ends(link)[0] else 1


def _site(index: int) -> SiteWiring:
    base = IPv4Address("10.0.0.0") + index * 256
    return SiteWiring(
        network=str(base),
        address=str(base + 1),
        access_gateway=str(base + 5),
        access_address=str(base + 6),
        access_macs=(_mac(0x10, index, 0), _mac(0x10, index, 1)),
    )


def _link(index: int) -> LinkWiring:
    base = IPv4Address("10.128.0.0") + index * 4
    return LinkWiring(
        addresses=(str(base + 1), str(base + 2)),
        macs=(_mac(0x20, index, 0), _mac(0x20, index, 1)),
    )


def _mac(kind: int, index: int, end: int) -> str:
    """Locally administered unicast address (02)."""
    tail = index.to_bytes(3, "big")
    return ":".join(f"{byte:02x}" for byte in (0x02, kind, *tail, end))


def indices(index: int, end: int) -> tuple[int, int]:
    """Interface numbers of a link's cable at an end: in the site, and in the fibre.

    They differ. Where both ends of a cable have the same number the kernel takes them for one
    device without a lower one, and acts on a lost or found carrier up to a second later
    (``linkwatch_urgent_event`` of ``net/core/link_watch.c``).
    """
    return _FIRST_INDEX + index, _FIRST_PORT_INDEX + end


def port_macs(index: int) -> tuple[str, str]:
    """Hardware addresses of a fibre's ports; nothing is ever sent to them."""
    return _mac(0x30, index, 0), _mac(0x30, index, 1)
