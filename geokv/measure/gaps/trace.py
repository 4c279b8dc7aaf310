"""MG7: a trace of every run that can be replayed, and the hit counts a replay must give again.

The line format is Mooncake's (FAST'25 release): ``timestamp`` in whole ms, ``input_length`` and
``output_length`` in tokens, ``hash_ids`` with a number per block, each of which stands for the
block and all before it. Further keys are ours and may be left out (docs/measures.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from geokv.measure.gaps.served import QUESTION, CellView, Served
from geokv.units import NS_PER_MS

_PAUSE_MS = 1000
"""Between the cells of one file."""


def cell(view: CellView) -> dict[str, Any]:
    """Prompt tokens of all answered requests, warm-ups too, by the site that served them and the
    tier they came from; and those that came from other sites by which."""
    tokens: dict[str, dict[str, int]] = {}
    sources: dict[str, dict[str, int]] = {}
    asked = [one for one in view.requests if one.counted or one.warmup]
    for one in asked:
        if not one.ok:
            continue
        size = view.chunk_tokens(one.site)
        remote, disk = one.chunks_remote * size, one.chunks_disk * size
        dram = one.chunks_local * size - disk
        hits = {
            # The first chunk that is brought may lie in part on the device already.
            "device": max(0, one.cached_tokens - remote - disk - dram),
            "dram": dram,
            "disk": disk,
            "remote": remote,
            "computed": one.prompt_tokens - one.cached_tokens,
        }
        into = tokens.setdefault(one.site, dict.fromkeys(hits, 0))
        for tier, count in hits.items():
            into[tier] += count
        for source, chunks in one.chunks_by_site.items():
            whence = sources.setdefault(one.site, {})
            whence[source] = whence.get(source, 0) + chunks * size
    return {
        **view.place,
        "trace": "trace.jsonl" if _is_recorded(view) else None,
        "requests": len(asked),
        "answered": sum(one.ok for one in asked),
        "tokens": dict(sorted(tokens.items())),
        "remote_tokens_from": {
            site: dict(sorted(of.items())) for site, of in sorted(sources.items())
        },
    }


def lines(views: Sequence[CellView]) -> Iterator[dict[str, Any]]:
    """Every request of a run as a line of its trace, cell after cell.

    Arms whose KV was planted to be wrong are no traffic and left out; what was done to sites
    around them is kept.
    """
    ids: dict[str, int] = {}
    base_ms = 0
    for view in views:
        if not _is_recorded(view):
            continue
        first_ns = min(one.due_ns for one in view.requests)
        last_ms = 0
        for one in sorted(view.requests, key=lambda one: one.due_ns):
            due_ns = one.due_ns - first_ns
            last_ms = due_ns // NS_PER_MS
            yield _line(one, ids, base_ms + last_ms, due_ns)
        base_ms += last_ms + _PAUSE_MS


def _is_recorded(view: CellView) -> bool:
    """Whether the blocks of all its prompts are known, without which it is no trace."""
    return bool(view.requests) and all(one.blocks for one in view.requests)


def _line(one: Served, ids: dict[str, int], timestamp_ms: int, due_ns: int) -> dict[str, Any]:
    line: dict[str, Any] = {
        "timestamp": timestamp_ms,
        "input_length": one.prompt_tokens,
        "output_length": one.output_tokens,
        "hash_ids": [ids.setdefault(name, len(ids)) for name in one.blocks],
        "block_tokens": one.block_tokens,
        "due_ns": due_ns,
        "cell": one.cell,
        "site": one.site,
        "tenant": one.tenant,
        "request_id": one.request_id,
        "group": one.group,
    }
    if one.category != QUESTION:
        line["category"] = one.category
    if one.warmup:
        line["warmup"] = True
    if one.session is not None:
        line["session"] = one.session
    if one.door is not None:
        line["door"] = one.door
    if one.setup:
        line["setup"] = list(one.setup)
    return line


def differing(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where two ``cell`` rows count differently; empty when a replay hit as its run did."""
    found = [
        f"{name}: {then[name]} then, {now[name]} now"
        for name in ("requests", "answered")
        if then[name] != now[name]
    ]
    for kind in ("tokens", "remote_tokens_from"):
        for site in sorted(then[kind].keys() | now[kind].keys()):
            old, new = then[kind].get(site, {}), now[kind].get(site, {})
            found += [
                f"{site}, {name}: {old.get(name, 0):,} tokens then, {new.get(name, 0):,} now"
                for name in sorted(old.keys() | new.keys())
                if old.get(name, 0) != new.get(name, 0)
            ]
    return found
