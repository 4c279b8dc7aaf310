"""Checks of what sites do for each other: transports, rate caps, copies, mixed fleets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geokv.scenario.paths import suggest
from geokv.scenario.substrate import FOREIGN, LOSSY, TCP_ONLY, Substrate
from geokv.scenario.tenants import TENANTS
from geokv.scenario.workload import OpenLoop

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

_MIXED = ("closed_form_within", "overlap_within")
_ON_PAPER = ("closed_form_within", "overlap_within", "break_even_within")


def sharing_problems(scenario: Scenario) -> list[str]:
    """Every contradiction, as ``path: what is wrong``; empty when there is none."""
    checks = (_substrate, _codec, _caps, _copies, _types, _paper)
    return [line for check in checks for line in check(scenario)]


def _substrate(scenario: Scenario) -> list[str]:
    substrate = scenario.cache.substrate
    if substrate.kind not in FOREIGN:
        return []
    found = []
    if scenario.clock == "virtual":
        found.append(
            f"cache.substrate.kind: {substrate.kind} polls and spins, which stops virtual time; "
            "use clock: wall, or kind: tcp"
        )
    plain = Substrate()
    found += [
        f"cache.substrate.{name}: has no effect on what {substrate.kind} carries; leave it out, "
        "or use kind: tcp"
        for name in TCP_ONLY
        if (getattr(substrate, name) or None) != (getattr(plain, name) or None)
    ]
    if scenario.cache.mixed == "convert":
        found.append(
            f"cache.mixed: what {substrate.kind} carries is not converted; use refuse, or "
            "cache.substrate.kind: tcp"
        )
    return found


def _codec(scenario: Scenario) -> list[str]:
    substrate = scenario.cache.substrate
    found = []
    if substrate.codec in LOSSY and scenario.cache.exact:
        found.append(
            f"cache.substrate.codec: {substrate.codec} loses something, which cache.exact "
            "refuses; use zstd, or cache.exact: false"
        )
    if substrate.codec_cost is not None and scenario.deployment.compute == "real":
        found.append(
            "cache.substrate.codec_cost: nothing is charged with deployment.compute: real; leave "
            "it out"
        )
    return found


def _caps(scenario: Scenario) -> list[str]:
    substrate = scenario.cache.substrate
    known = list(TENANTS)
    if isinstance(scenario.workload, OpenLoop):
        known += [f"tenant-{number}" for number in range(len(known), scenario.workload.tenants)]
    found = [
        f"cache.substrate.tenant_caps.{name}: unknown tenant (known: {', '.join(known)})"
        f"{suggest(name, known)}"
        for name in substrate.tenant_caps or {}
        if name not in known
    ]
    sites = list(scenario.topology.sites)
    seen: dict[frozenset[str], str] = {}
    for pair in substrate.link_caps or {}:
        place = f"cache.substrate.link_caps.{pair}"
        ends = pair.split("-")
        unknown = [site for site in ends if site not in sites]
        if len(ends) != 2 or ends[0] == ends[1]:
            found.append(f"{place}: must be two sites, such as {sites[0]}-{sites[-1]}")
        elif unknown:
            found.append(f"{place}: unknown site {unknown[0]!r} (known: {', '.join(sites)})")
        elif frozenset(ends) in seen:
            found.append(f"{place}: the same two sites as {seen[frozenset(ends)]}")
        else:
            seen[frozenset(ends)] = pair
    return found


def _copies(scenario: Scenario) -> list[str]:
    replication, sites = scenario.cache.replication, list(scenario.topology.sites)
    if replication is None:
        return []
    found = [
        f"cache.replication.to: unknown site {site!r} (known: {', '.join(sites)})"
        f"{suggest(site, sites)}"
        for site in replication.to
        if site not in sites
    ]
    if len(set(replication.to)) != len(replication.to):
        found.append("cache.replication.to: a site is listed twice")
    if replication.copies is not None and replication.copies >= len(sites):
        found.append(
            f"cache.replication.copies: must be ≤ {len(sites) - 1}, or there is no other site "
            f"left, got {replication.copies}"
        )
    if scenario.cache.substrate.streams < 2:
        found.append(
            "cache.substrate.streams: must be ≥ 2 beside cache.replication, or what a site asks "
            "for waits behind what it pushes"
        )
    return found


def _types(scenario: Scenario) -> list[str]:
    """INV-1: what a site of another type computes is not what this one would have."""
    deployment, cache = scenario.deployment, scenario.cache
    if not cache.exact or cache.mixed == "refuse":
        return []
    types = {site: deployment.at(site).dtype for site in scenario.topology.sites}
    return [
        f"deployment.sites.{site}.dtype: {dtype} is not what {deployment.dtype} elsewhere would "
        "have computed; needs cache.exact: false"
        for site, dtype in types.items()
        if dtype != deployment.dtype
    ]


def _paper(scenario: Scenario) -> list[str]:
    """What is computed on paper knows the line's rate, and chunks that need no converting."""
    found = []
    asked = [name for name in _ON_PAPER if getattr(scenario.expect, name) is not None]
    if scenario.cache.substrate.capped:
        found += [
            f"expect.{name}: is computed from the line's rate and knows of no cap; leave out "
            "cache.substrate.tenant_caps and link_caps"
            for name in asked
        ]
    if scenario.cache.substrate.codec != "none":
        found += [
            f"expect.{name}: knows of no codec; leave out cache.substrate.codec" for name in asked
        ]
    if mixed_fleet(scenario):
        found += [
            f"expect.{name}: knows of no chunks that are converted; leave it out where provider "
            "and asker are laid out differently"
            for name in asked
            if name in _MIXED
        ]
    return found


def mixed_fleet(scenario: Scenario) -> bool:
    """Must what the asker gets from the provider be converted?"""
    provider, asker = scenario.workload.provider, scenario.workload.asker
    return scenario.deployment.laid_out(provider) != scenario.deployment.laid_out(asker)
