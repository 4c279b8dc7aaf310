"""MG4: reuse distance and residency of chunks, per tenant and category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from geokv.measure.gaps.distance import reuse_distances
from geokv.measure.gaps.numbers import share_of, spread
from geokv.measure.gaps.residency import residency
from geokv.measure.gaps.served import PREPARE, CellView, Served

_Seen = tuple[Served, int | None]
"""One chunk of one request, and its reuse distance."""


def rows(view: CellView, kv_bytes_per_token: int) -> list[dict[str, Any]]:
    """One row per group of requests: how far apart they touch the same chunk."""
    chunk_tokens = max(view.chunk_tokens(site) for site in view.scenario.topology.sites)
    found = []
    for group in view.groups:
        here, anywhere = _distances(view, group, chunk_tokens)
        found.append(
            {
                **view.place,
                "group": group,
                "chunk_tokens": chunk_tokens,
                "chunk_bytes_stands_for": chunk_tokens * kv_bytes_per_token,
                "by": _by_whom(here, anywhere),
                "lru": _lru(here, anywhere),
            }
        )
    return found


def cell(view: CellView) -> dict[str, Any]:
    """How long chunks stayed in the tiers of each site."""
    categories = {one.request_id: one.category for one in view.requests}
    stays = residency(view.history, categories) if view.history is not None else None
    return {**view.place, "residency": stays}


def _distances(view: CellView, group: str, chunk_tokens: int) -> tuple[list[_Seen], list[_Seen]]:
    """Of the group's chunks: as each site saw them, and as one cache for all sites would have.

    What prepared caches, and warm-ups, were touched too; only counted requests are told of.
    """
    rows = [one for one in view.requests if one.group in (group, PREPARE)]
    here: list[_Seen] = []
    for site in dict.fromkeys(one.site for one in rows):
        here += _of([one for one in rows if one.site == site], chunk_tokens)
    return here, _of(rows, chunk_tokens)


def _of(rows: Sequence[Served], chunk_tokens: int) -> list[_Seen]:
    touched: list[tuple[Served, Hashable]] = [
        (one, (one.tenant, name)) for one in rows for name in one.chunk_names(chunk_tokens)
    ]
    distances = reuse_distances([what for _, what in touched])
    pairs = zip(touched, distances, strict=True)
    return [(one, distance) for (one, _), distance in pairs if one.counted]


def _by_whom(here: Sequence[_Seen], anywhere: Sequence[_Seen]) -> list[dict[str, Any]]:
    """One row per tenant and category."""
    whose: dict[tuple[str, str], dict[str, list[int | None]]] = defaultdict(
        lambda: {"here": [], "anywhere": []}
    )
    for name, seen in (("here", here), ("anywhere", anywhere)):
        for one, distance in seen:
            whose[one.tenant, one.category][name].append(distance)
    return [
        {
            "tenant": tenant,
            "category": category,
            "chunks": len(both["here"]),
            **{name: _reused(distances) for name, distances in both.items()},
        }
        for (tenant, category), both in sorted(whose.items())
    ]


def _reused(distances: Sequence[int | None]) -> dict[str, Any]:
    again = [one for one in distances if one is not None]
    return {"reused_share": share_of(len(again), len(distances)), "distance": spread(again)}


def _lru(here: Sequence[_Seen], anywhere: Sequence[_Seen]) -> dict[str, list[Any]] | None:
    """Share of touched chunks that an LRU cache of so many chunks would have had: at one place
    for each site, or one for all."""
    if not here:
        return None
    most = max((d for _, d in [*here, *anywhere] if d is not None), default=0)
    sizes = [1]
    while sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return {
        "chunks": sizes,
        "here": [_hits(here, size) for size in sizes],
        "anywhere": [_hits(anywhere, size) for size in sizes],
    }


def _hits(seen: Sequence[_Seen], size: int) -> float | None:
    return share_of(sum(d is not None and d < size for _, d in seen), len(seen))
