"""A link without light: both ends lose their carrier, and what was on its way is gone.

The fibre's two ports go down, so each site's interface sees its cable die, as a router does
when a fibre is dug up. Routes stay where they are until somebody moves them.
"""

from __future__ import annotations

from geokv.lab import wiring
from geokv.lab.build import Lab


def cut(lab: Lab, link: str) -> None:
    """Take the light away, in both directions at once.

    Raises:
        ConfigError: no such link.
        LabError: the kernel refused.
    """
    _set_ports(lab, link, up=False)


def restore(lab: Lab, link: str) -> None:
    """Give the light back; the line is as it was.

    Raises:
        ConfigError: no such link.
        LabError: the kernel refused.
    """
    _set_ports(lab, link, up=True)


def carriers(lab: Lab, link: str) -> tuple[bool, bool]:
    """Whether each of the two sites (a, then b) has a carrier on its interface to the link."""
    plan = lab.link_plan(link)
    ends = ((plan.a, plan.b), (plan.b, plan.a))
    here, there = (lab.site_netlink(site).carrier(wiring.to_neighbour(far)) for site, far in ends)
    return here, there


def _set_ports(lab: Lab, link: str, *, up: bool) -> None:
    plan = lab.link_plan(link)
    fibre = lab.fibre_netlink(link)
    for site in (plan.a, plan.b):
        fibre.set_link(wiring.port(site), up=up)
