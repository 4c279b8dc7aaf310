"""``leaked``: does every pool add up when all is quiet, with nobody holding anything?

``free + cached + pinned + reserved`` is the total, and nothing is pinned, reserved, promised or
lent any more.
"""

from __future__ import annotations

from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import History

NAME, INV = "leaked", "INV-5"
_PARTS = ("free", "cached", "pinned", "reserved")
_HELD = ("pinned", "reserved", "leases", "promised")


def check(history: History) -> Finding:
    """Add up every pool at the end."""
    offences: list[Offence] = []
    sites: dict[str, int] = {}
    silent = [event for event in history.of("pools") if event.get("error")]
    for event in history.of("pools"):
        site = event["site"]
        pools = {name: pool for name, pool in event.items() if isinstance(pool, dict)}
        sites[site] = len(pools)
        for name, pool in sorted(pools.items()):
            held = {what: pool[what] for what in _HELD if pool.get(what)}
            parts = sum(pool.get(part) or 0 for part in _PARTS)
            if held:
                shown = ", ".join(f"{count} {what}" for what, count in held.items())
                offences.append((f"{name} at {site}: {shown} when all was quiet", [event]))
            elif parts != pool["total"]:
                said = f"{name} at {site}: {parts} of {pool['total']} are accounted for"
                offences.append((said, [event]))
    unknown = "" if sites else "no pool was looked at when all was quiet"
    if silent:
        unknown = f"{silent[0]['site']} did not show its pools: {silent[0]['error']}"
    examined = f"{sum(sites.values())} pools of {len(sites)} sites add up and nobody holds anything"
    return conclude(NAME, INV, offences, unknown, examined)
