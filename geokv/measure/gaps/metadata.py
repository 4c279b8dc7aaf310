"""MG2: what it costs to know where KV is, and how often that is wrong."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from geokv.measure.checker.history import Event, History
from geokv.measure.gaps.numbers import share_of, spread
from geokv.measure.gaps.served import CellView, Served
from geokv.units import NS_PER_MS

FRAME_BYTES = 36
"""What a message has around its body, each way: head and MAC (``substrate.tcp.wire``)."""
_ASTRAY = ("absent", "stale", "purged")
"""Causes of a fetch that say: the site that the directory named no longer has this."""
_COMES = ("store", "fetch", "convert", "pushed", "promote", "demote", "found")
_GOES = ("evict", "drop")


def rows(view: CellView) -> list[dict[str, Any]]:
    """One row per group of requests: what asking took, and how often the answer was wrong."""
    return [
        {**view.place, "group": group, **_row(view, asked)} for group, asked in view.groups.items()
    ]


def cell(view: CellView) -> dict[str, Any]:
    """Of the cell as a whole: bytes of messages, and how long the directory was behind."""
    history = view.history
    if history is None:
        return {**view.place, "messages": None, "late_news_ms": None, "wrong_for_ms": None}
    unseen, wrong = staleness(history)
    return {
        **view.place,
        "messages": _messages(view, history),
        "late_news_ms": spread(unseen, NS_PER_MS, 4),
        "wrong_for_ms": spread(wrong, NS_PER_MS, 4),
    }


def _row(view: CellView, asked: Sequence[Served]) -> dict[str, Any]:
    timed = [one for one in asked if one.timed]
    lookups = [one.span("lookup") for one in timed]
    ids = {one.request_id for one in asked}
    events = list(view.history.of("fetch")) if view.history is not None else []
    fetches = [event for event in events if event.get("request_id", "") in ids]
    astray = sum(event.get("cause") in _ASTRAY for event in fetches)
    return {
        "lookup_ms": spread(lookups, NS_PER_MS, 4),
        "lookup_share": share_of(sum(lookups), sum(one.ttft_ns or 0 for one in timed)),
        "named": len(fetches),
        "wrong_location": astray,
        "wrong_location_share": share_of(astray, len(fetches)),
    }


def _messages(view: CellView, history: History) -> dict[str, Any] | None:
    """Bytes that are about KV beside bytes that are KV, of all that crossed links."""
    traffic = view.traffic
    if traffic is None:
        return None
    by_op: dict[str, dict[str, int]] = {}
    for ops in traffic.values():
        for op, counted in ops.items():
            into = by_op.setdefault(op, dict.fromkeys(counted, 0))
            for name, value in counted.items():
                into[name] += value
    said = sum(one["sent_bytes"] + one["received_bytes"] for one in by_op.values())
    frames = 2 * FRAME_BYTES * sum(one["calls"] for one in by_op.values())
    payload, headers = _answers(history)
    about = said + frames + headers
    stands_for = payload * view.scenario.deployment.byte_scale
    return {
        "by_operation": dict(sorted(by_op.items())),
        "directory_bytes": said,
        "frame_bytes": frames,
        "header_bytes": headers,
        "kv_bytes": payload,
        "kv_bytes_stands_for": stands_for,
        "metadata_per_kv_byte": share_of(about, payload, 6),
        "metadata_per_kv_byte_stands_for": share_of(about, stands_for, 9),
    }


def _answers(history: History) -> tuple[int, int]:
    """Payload of chunks that were fetched, and what the record headers of these answers add. What
    was sent and never came whole is neither."""
    sent: dict[tuple[str, str, str], deque[int]] = defaultdict(deque)
    payload = headers = 0
    for event in history.of("serve", "fetch"):
        if event.get("cause"):
            continue
        if event["op"] == "serve":
            sent[event["site"], event["peer"], event["key"]].append(int(event["sent_bytes"]))
        elif "bytes" in event:
            answers = sent[event["source"], event["site"], event["key"]]
            payload += int(event["bytes"])
            # The latest ones: an earlier one may have been given up on its way.
            latest = [answers.pop() for _ in range(min(int(event["parts"]), len(answers)))]
            answers.clear()
            headers += max(0, sum(latest) - int(event["bytes"]))
    return payload, headers


def staleness(history: History) -> tuple[list[int], list[int]]:
    """How long the directory was behind, ns: copies it had not heard of yet, and copies it
    still named though they were gone. Only what was put right is counted; a copy that went
    before it was told of was never wrong."""
    tiers: dict[tuple[str, str], set[str]] = defaultdict(set)
    told: set[tuple[str, str]] = set()
    came_ns: dict[tuple[str, str], int] = {}
    gone_ns: dict[tuple[str, str], int] = {}
    unseen: list[int] = []
    wrong: list[int] = []
    for event in history.of(*_COMES, *_GOES, "publish", "withdraw"):
        where, t_ns, op = (event["site"], event.get("key", "")), int(event["t_ns"]), event["op"]
        if op == "publish":
            if where in came_ns:
                unseen.append(t_ns - came_ns.pop(where))
            told.add(where)
        elif op == "withdraw":
            if where in gone_ns:
                wrong.append(t_ns - gone_ns.pop(where))
            told.discard(where)
        elif op in _GOES:
            tiers[where].discard(event.get("tier", "dram"))
            if not tiers[where]:
                came_ns.pop(where, None)
                if where in told:
                    gone_ns[where] = t_ns
        elif not event.get("cause") and event.get("place") != -1:
            if not tiers[where] and where not in told:
                came_ns[where] = t_ns
            gone_ns.pop(where, None)
            tiers[where].add(_tier(event))
    return unseen, wrong


def _tier(event: Event) -> str:
    return "disk" if event["op"] in ("demote", "found") else "dram"
