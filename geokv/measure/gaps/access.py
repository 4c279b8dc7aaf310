"""MG1: how often, how much and how finely remote KV is touched."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from geokv.measure.checker.history import Event
from geokv.measure.gaps.numbers import mean_of, share_of, spread
from geokv.measure.gaps.served import CellView, Served
from geokv.units import NS_PER_S


def rows(view: CellView) -> list[dict[str, Any]]:
    """One row per group of requests; what a group read from other sites, chunk by chunk."""
    reads: dict[str, list[Event]] = defaultdict(list)
    if view.history is not None:
        for event in view.history.of("fetch"):
            reads[event.get("request_id", "")].append(event)
    return [
        {**view.place, "group": group, **_row(view, asked, reads)}
        for group, asked in view.groups.items()
    ]


def _row(view: CellView, asked: Sequence[Served], reads: dict[str, list[Event]]) -> dict[str, Any]:
    tried = [event for one in asked for event in reads[one.request_id]]
    came = [event for event in tried if not event.get("cause")]
    whole = [event for event in came if "bytes" in event]
    parts = sum(event["parts"] for event in whole)
    moved = sum(event["bytes"] for event in whole)
    runs = [run for one in asked for run in _runs(reads[one.request_id])]
    remote_tokens = sum(one.chunks_remote * view.chunk_tokens(one.site) for one in asked)
    return {
        "requests": len(asked),
        "requests_with_remote": sum(one.chunks_remote > 0 for one in asked),
        "chunks_read": len(came),
        "chunks_lost": dict(Counter(str(e["cause"]) for e in tried if e.get("cause"))),
        "chunks_per_request": mean_of([len(_came(reads[one.request_id])) for one in asked]),
        "reads_per_s": _rate(asked, parts),
        "reads_per_chunk": share_of(parts, len(whole), 3),
        "bytes_per_read": spread([size for event in whole for size in _reads(event)], digits=0),
        "bytes": moved,
        "bytes_stands_for": moved * view.scenario.deployment.byte_scale,
        "run_chunks": spread(runs),
        "remote_share": share_of(remote_tokens, sum(one.prompt_tokens for one in asked)),
        "read_before": share_of(_again(came), len(came)),
        "sources": dict(sorted(Counter(str(e["source"]) for e in came).items())),
    }


def _reads(event: Event) -> list[int]:
    """Payload of each answer in which a chunk came: layer groups are of one size."""
    parts = int(event["parts"])
    return [int(event["bytes"]) // parts] * parts


def _came(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if not event.get("cause")]


def _runs(events: Sequence[Event]) -> list[int]:
    """Lengths of what one request read without a gap from one site, in chunks."""
    found: list[int] = []
    last: tuple[int, str] | None = None
    for event in sorted(_came(events), key=lambda event: int(event["index"])):
        here = (int(event["index"]), str(event["source"]))
        if last is not None and here[0] == last[0]:
            # Several chunks of another layout came for this one.
            continue
        if last is not None and here == (last[0] + 1, last[1]):
            found[-1] += 1
        else:
            found.append(1)
        last = here
    return found


def _again(came: Sequence[Event]) -> int:
    """Reads of a chunk that the same site had read before."""
    seen: set[tuple[str, str]] = set()
    again = 0
    for event in came:
        where = (event["site"], event["key"])
        again += where in seen
        seen.add(where)
    return again


def _rate(asked: Sequence[Served], reads: int) -> float | None:
    """Reads per second of the time from the first request to the last answer."""
    ends = [one.done_ns for one in asked if one.done_ns is not None]
    if not ends:
        return None
    lasted_ns = max(ends) - min(one.sent_ns for one in asked)
    return round(reads * NS_PER_S / lasted_ns, 3) if lasted_ns > 0 else None
