"""Requests and cells by hand for the seven gaps, times in ms. Chunks are of 256 tokens in blocks of
64, and S is 4."""

from __future__ import annotations

from typing import Any

from handwritten import SCENARIO
from histories import MS

from geokv.measure.checker import Event, History
from geokv.measure.gaps.served import ALL, CellView, Served
from geokv.measure.spans import SPAN_NAMES
from geokv.scenario import load_scenario

BLOCK = 64
CHUNK_BLOCKS = 4


def served(name: str, sent_ms: float = 0.0, **more: Any) -> Served:
    """Answered 100 ms after it was sent; parts of its TTFT are given by name, in ms."""
    parts = {part: round(more.pop(part, 0.0) * MS) for part in SPAN_NAMES}
    sent_ns = round(sent_ms * MS)
    base: dict[str, Any] = {
        "request_id": name, "cell": 0, "group": ALL, "category": "question", "tenant": "t0",
        "site": "b", "counted": True, "warmup": False, "ok": True, "sent_ns": sent_ns,
        "due_ns": sent_ns, "done_ns": sent_ns + 100 * MS, "ttft_ns": sum(parts.values()),
        "spans": parts, "prompt_tokens": 0, "output_tokens": 4, "cached_tokens": 0,
        "chunks_remote": 0, "chunks_local": 0, "chunks_disk": 0, "chunks_by_site": {},
        "wire_bytes": 0, "blocks": (), "block_tokens": BLOCK, "setup": (),
    }  # fmt: skip
    return Served(**{**base, **more})


def asks(*chunks: str, rest: int = 0) -> dict[str, Any]:
    """Prompt of these chunks, and ``rest`` tokens behind them."""
    blocks = [f"{chunk}{part}" for chunk in chunks for part in range(CHUNK_BLOCKS)]
    if rest:
        blocks.append("rest")
    tokens = len(chunks) * CHUNK_BLOCKS * BLOCK + rest
    return {"blocks": tuple(blocks), "prompt_tokens": tokens}


def came(
    t_ms: float, name: str, index: int, key: str, source: str = "a", site: str = "b", parts: int = 1
) -> Event:
    """A chunk of 1000 bytes that was verified 2 µs after its last byte and readable at ``t_ms``,
    3 µs later."""
    last_ns = round(t_ms * MS) - 5_000
    return {
        "t_ns": round(t_ms * MS), "site": site, "op": "fetch", "key": key, "source": source,
        "cause": "", "request_id": name, "index": index, "place": index, "tenant": "t0",
        "asked_ns": last_ns - MS, "first_byte_ns": last_ns - MS // 2, "last_byte_ns": last_ns,
        "verified_ns": last_ns + 2_000, "bytes": 1000, "parts": parts,
    }  # fmt: skip


def view(rows: list[Served], *events: Event, traffic: Any = None) -> CellView:
    cell = load_scenario(SCENARIO).cells()[0]
    ordered = sorted(events, key=lambda event: int(event["t_ns"]))
    return CellView(cell, rows, History(ordered) if ordered else None, traffic)
