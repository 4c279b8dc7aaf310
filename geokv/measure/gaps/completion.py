"""MG3: what it costs to learn that a transfer has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.measure.gaps.numbers import mean_of, share_of, spread
from geokv.measure.gaps.served import CellView, Served
from geokv.units import NS_PER_US


def rows(view: CellView) -> list[dict[str, Any]]:
    """One row per group of requests that fetched anything."""
    return [
        {**view.place, "group": group, **_row(view, fetched)}
        for group, asked in view.groups.items()
        if (fetched := [one for one in asked if one.timed and one.chunks_remote])
    ]


def _row(view: CellView, fetched: Sequence[Served]) -> dict[str, Any]:
    ids = {one.request_id for one in fetched}
    events = list(view.history.of("fetch")) if view.history is not None else []
    whole = [e for e in events if e.get("request_id", "") in ids and "verified_ns" in e]
    waits = [one.span("completion") for one in fetched]
    parts: dict[str, int] = dict.fromkeys(ids, 0)
    for event in whole:
        parts[event["request_id"]] += int(event["parts"])
    return {
        "requests": len(fetched),
        "completion_us": spread(waits, NS_PER_US),
        "completion_share": share_of(sum(waits), sum(one.ttft_ns or 0 for one in fetched), 6),
        "completions_per_request": mean_of(list(parts.values())),
        "verified_us": spread([e["verified_ns"] - e["last_byte_ns"] for e in whole], NS_PER_US),
        "readable_us": spread([e["t_ns"] - e["last_byte_ns"] for e in whole], NS_PER_US),
    }
