"""Who no longer hears whom: drop rules for a direction of a link, or from one site to another."""

from __future__ import annotations

from dataclasses import dataclass

from geokv.errors import ConfigError
from geokv.lab import wiring
from geokv.lab.build import Lab
from geokv.lab.netlink import Netlink
from geokv.lab.sieve import Networks, Rule, add_rule, dropped, remove_rule
from geokv.lab.topology import ends


@dataclass(frozen=True, slots=True)
class Silence:
    """Rules in place, each with the namespace it is in."""

    rules: tuple[tuple[Netlink, Rule], ...]

    def dropped(self) -> int:
        """Packets lost to it so far.

        Raises:
            LabError: a rule is not there any more.
        """
        return sum(dropped(link, rule) for link, rule in self.rules)

    def lift(self) -> None:
        """Everything is heard again.

        Raises:
            LabError: a rule is not there any more.
        """
        for link, rule in self.rules:
            remove_rule(link, rule)


def silence_link(lab: Lab, link: str, sender: str) -> Silence:
    """Nothing that one end sends into a link arrives; its carrier stays.

    Raises:
        ConfigError: no such link, or no such end.
        LabError: the kernel refused.
    """
    plan = lab.link_plan(link)
    if sender not in (plan.a, plan.b):
        raise ConfigError(f"links.{link}: has no end {sender!r} (ends: {plan.a}, {plan.b})")
    fibre = lab.fibre_netlink(link)
    return Silence(((fibre, add_rule(fibre, wiring.port(sender))),))


def silence_sites(lab: Lab, sender: str, receiver: str) -> Silence:
    """Nothing that one site (or its clients) sends to another arrives, whatever way it takes;
    what passes through either of them does.

    Raises:
        ConfigError: no such site.
        LabError: the kernel refused.
    """
    lab.plan.path(sender, receiver)
    sites = lab.wiring.sites
    networks = Networks((sites[sender].network, 24), (sites[receiver].network, 24))
    rules = []
    for link in lab.plan.links:
        if receiver in ends(link):
            fibre = lab.fibre_netlink(link)
            port = wiring.port(wiring.other_end(link, receiver))
            rules.append((fibre, add_rule(fibre, port, networks)))
    return Silence(tuple(rules))
