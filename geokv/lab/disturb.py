"""A fibre that changes without a word to the hosts and routers at its ends.

``Lab.change`` is a planned change: TCP buffers, routes and queues follow. A fault is not
planned: the line is slower, longer or dirtier, and everything that was set up for it stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from geokv.errors import ConfigError
from geokv.lab.link_plan import LinkPlan
from geokv.lab.plan import LabPlan
from geokv.units import NS_PER_S

FIBRE_FIELDS = (
    "km",
    "rate",
    "detour",
    "loss",
    "loss_model",
    "jitter",
    "extra_delay",
    "corrupt",
    "reorder",
    "duplicate",
)
"""Fields of a link that are the fibre's and not its hosts' or routers'."""


def disturbed(plan: LabPlan, link: str, **changes: Any) -> LabPlan:
    """The plan with some fields of one fibre replaced and all else as it was set up.

    The queue only grows by what a longer way holds. The values from before give back exactly
    the plan from before.

    Raises:
        ConfigError: refused, with its path, or not a property of the fibre.
    """
    for field in changes:
        if field not in FIBRE_FIELDS:
            known = ", ".join(FIBRE_FIELDS)
            raise ConfigError(f"links.{link}.{field}: not a property of the fibre ({known})")
    compiled = plan.replan(link, **changes)
    drawn, set_up = plan.set_up.get(link, (plan.topology.links[link], plan.links[link]))
    kept = {name: pair for name, pair in plan.set_up.items() if name != link}
    if compiled.topology.links[link] == drawn:
        new = set_up
    else:
        new = _between(compiled.links[link], set_up)
        kept[link] = (drawn, set_up)
    return replace(plan, topology=compiled.topology, links={**plan.links, link: new}, set_up=kept)


def _between(wanted: LinkPlan, set_up: LinkPlan) -> LinkPlan:
    """A fibre as wanted between hosts and queues as they were set up."""
    longer_ns = max(0, wanted.delay_ns - set_up.delay_ns)
    more = -(-wanted.rate_bps * longer_ns // (8 * NS_PER_S * set_up.mtu))
    limit = set_up.forward.limit_packets + more
    return replace(
        wanted,
        forward=replace(wanted.forward, limit_packets=limit),
        backward=replace(wanted.backward, limit_packets=limit),
        tcp=set_up.tcp,
    )
