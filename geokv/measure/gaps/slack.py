"""MG5: how long before it was needed the need of cached KV could be known.

A prefetch that begins when the need becomes predictable, and takes as long as bringing the KV did
take, hides what fits into the slack.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from geokv.measure.checker.history import History
from geokv.measure.gaps.numbers import mean_of, share_of, spread
from geokv.measure.gaps.served import CellView, Served
from geokv.units import NS_PER_MS

BRING = ("lookup", "fetch", "completion", "load")
"""Parts of a TTFT in which a request waits for cached KV."""
_Pair = tuple[int, int]
"""Slack and what bringing took, ns."""


def rows(view: CellView) -> list[dict[str, Any]]:
    """One row per group of requests that waited for cached KV from below the device."""
    published = _published(view.history) if view.history is not None else {}
    keys = _fetched_keys(view.history) if view.history is not None else {}
    turns = _turns(view.requests)
    found = []
    for group, asked in view.groups.items():
        brought = [one for one in asked if one.timed and one.chunks_remote + one.chunks_local]
        if not brought:
            continue
        arrival = [(_ready_ns(one) - one.sent_ns, one.span(*BRING)) for one in brought]
        turn = [
            (_ready_ns(one) - turns[one.request_id], one.span(*BRING))
            for one in brought
            if one.request_id in turns
        ]
        copy = [
            (_ready_ns(one) - known, one.span(*BRING))
            for one in brought
            if (known := _all_published(one, keys, published)) is not None
        ]
        found.append(
            {
                **view.place,
                "group": group,
                "requests": len(brought),
                "bring_ms": spread([took for _, took in arrival], NS_PER_MS),
                "from_arrival": _slack(arrival),
                "from_last_turn": _slack(turn),
                "from_publication": _slack(copy),
            }
        )
    return found


def _ready_ns(one: Served) -> int:
    """When the engine would have begun to compute, had all been there: the deadline of what a
    prefetch brings. Waiting for a place and for the first step is the engine's own."""
    return one.sent_ns + one.span("queue")


def _slack(pairs: Sequence[_Pair]) -> dict[str, Any] | None:
    if not pairs:
        return None
    return {
        "slack_ms": spread([slack for slack, _ in pairs], NS_PER_MS),
        "enough": share_of(sum(slack >= took for slack, took in pairs), len(pairs)),
        "hidden_share": mean_of(
            [min(1.0, max(0, slack) / took) if took else 1.0 for slack, took in pairs], 4
        ),
    }


def _turns(requests: Sequence[Served]) -> dict[str, int]:
    """Request → end of the request before it in its session, where there was one."""
    ended: dict[str, int] = {}
    found = {}
    for one in requests:
        if one.session is None:
            continue
        before = ended.get(one.session)
        if before is not None and before <= one.sent_ns:
            found[one.request_id] = before
        if one.done_ns is not None:
            ended[one.session] = one.done_ns
    return found


def _fetched_keys(history: History) -> dict[str, list[tuple[str, str]]]:
    """Request → (key, site that sent it) of every chunk that came for it."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for event in history.of("fetch"):
        if not event.get("cause"):
            found[event.get("request_id", "")].append((event["key"], event["source"]))
    return found


def _published(history: History) -> dict[tuple[str, str], list[int]]:
    """(key, site) → when the directory was told of that copy, in order."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in history.of("publish"):
        found[event["key"], event["site"]].append(int(event["t_ns"]))
    return found


def _all_published(
    one: Served,
    keys: dict[str, list[tuple[str, str]]],
    published: dict[tuple[str, str], list[int]],
) -> int | None:
    """When the directory last heard of a copy this request then fetched: from that moment on a
    speculative copy could have been on its way. None where it fetched nothing, or was told of
    a copy in another way."""
    moments = []
    for key, source in keys.get(one.request_id, ()):
        stamps = published.get((key, source), [])
        before = bisect_right(stamps, one.sent_ns)
        if not before:
            return None
        moments.append(stamps[before - 1])
    return max(moments, default=None)
