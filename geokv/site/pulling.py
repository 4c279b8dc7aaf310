"""Fetches without a request: what another tenant's traffic through the cache is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from geokv.clock import now_ns
from geokv.site.settings import Tenant
from geokv.site.worker import Worker
from geokv.units import NS_PER_S


async def pull(
    worker: Worker,
    tenant: Tenant,
    tokens: Sequence[int],
    deadline_ns: int,
    name: str,
    source: str | None = None,
) -> dict[str, Any]:
    """Look up and fetch the whole chunks of ``tokens`` as a request would, and forget those
    that were not here before: they come over the link again next time.

    Args:
        name: what the history calls who asked.
        source: site that is asked first for what it has, whoever else has it.

    Returns:
        ``remote`` chunks that came for this, their ``wire_bytes``, ``sites`` that sent them, and
        ``misses`` by cause.
    """
    cache = worker.cache
    refs = worker.chunks(tenant, tokens)
    new = [ref.key for ref in refs if ref.key not in cache.tiers]
    plan = await cache.lookup(refs, deadline_ns, name)
    if source is not None:
        plan = replace(plan, sources=tuple(first_of(source, sites) for sites in plan.sources))
    outcome = await cache.fetch(plan, deadline_ns, _taken)
    # After a chunk that did not come others may still be coming, and would stay.
    coming = [end for key in new if (end := cache.tier.pending(key)) is not None]
    if coming:
        await asyncio.wait(coming, timeout=max(0.0, (deadline_ns - now_ns()) / NS_PER_S))
    await cache.drop("all", new, tell=False)
    return {
        "remote": outcome.remote_chunks,
        "wire_bytes": outcome.wire_bytes,
        "sites": dict(outcome.sites),
        "misses": dict(plan.misses + outcome.misses),
    }


def first_of(source: str, sites: tuple[str, ...]) -> tuple[str, ...]:
    """``sites`` with ``source`` before the others, if it is one of them."""
    return tuple(sorted(sites, key=lambda site: site != source))


async def _taken(index: int, entry: Any) -> None:
    """Nothing is done with a chunk."""
