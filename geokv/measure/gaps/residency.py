"""How long chunks stay where they were put."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from geokv.measure.checker.copies import ENDS, Filling, followed
from geokv.measure.checker.history import History
from geokv.measure.gaps.numbers import spread
from geokv.units import NS_PER_MS

_UNKNOWN = "unknown"


def residency(history: History, categories: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row per site, tier, tenant and category: how long a chunk stayed, and what ended it.

    Stays that had not ended are counted as ``open`` and have no length: their real one is
    longer than what was seen.

    Args:
        categories: request → its category. A chunk's is that of the request for which it was
            stored or fetched, through copies and other tiers; ``unknown`` without one.
    """
    fillings = [filling for _, _, filling in followed(history) if filling is not None]
    stays: dict[tuple[str, ...], list[Filling]] = defaultdict(list)
    for one in fillings:
        tenant, category = _whose(one, categories)
        stays[one.site, one.tier, tenant, category].append(one)
    found = []
    for (site, tier, tenant, category), group in sorted(stays.items()):
        ended = [(one, one.ended) for one in group if one.ended is not None]
        lengths = [int(end["t_ns"]) - int(one.event["t_ns"]) for one, end in ended]
        counts = {op: sum(end["op"] == op for _, end in ended) for op in (*ENDS, "life")}
        found.append(
            {
                "site": site,
                "tier": tier,
                "tenant": tenant,
                "category": category,
                "chunks": len(group),
                "open": len(group) - len(ended),
                "evicted": counts["evict"],
                "dropped": counts["drop"],
                "lost_with_site": counts["life"],
                "stay_ms": spread(lengths, NS_PER_MS),
            }
        )
    return found


def _whose(one: Filling, categories: Mapping[str, str]) -> tuple[str, str]:
    tenant, category = "", ""
    step: Filling | None = one
    while step is not None and not (tenant and category):
        tenant = tenant or str(step.event.get("tenant", ""))
        category = category or categories.get(step.event.get("request_id", ""), "")
        step = step.before
    return tenant or _UNKNOWN, category or _UNKNOWN
