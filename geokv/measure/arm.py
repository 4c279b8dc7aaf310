"""One arm of one cell: its requests, reduced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from geokv.measure.energy import Constants, Joules, mean_joules, request_joules
from geokv.measure.percentile import percentile
from geokv.measure.records import Request
from geokv.measure.spans import median_spans, not_additive, off_by
from geokv.measure.statistics.intervals import Stream
from geokv.measure.statistics.ttft import Ttft, reduce_ttft
from geokv.scenario.model import CONTROLS


@dataclass(frozen=True)
class ArmResult:
    """Numbers of the measured requests (warm-ups left out), exact; rounding comes last."""

    arm: str
    asked: int
    n: int
    """Requests with an answer and a TTFT."""
    failed: list[str]
    """One sentence per request that ended in an error."""
    missing: int
    ttft: Ttft
    spans_ns: dict[str, int]
    wire_bytes: int
    """Nearest-rank median per request, as moved."""
    wire_bytes_total: int
    joules: Joules | None
    sources: dict[str, int]
    misses: dict[str, int]
    fetched: int
    """Requests that really got chunks over a link."""
    misnamed: list[str]
    """Requests that were not served the way their arm is called."""
    spans_off: list[str]
    worst_span_error: float

    @property
    def p50_ns(self) -> int | None:
        """Median TTFT; None when no request was answered."""
        return self.ttft.p50_ns


def reduce_arm(
    arm: str,
    rows: list[Request],
    asked: int,
    numbers: Constants,
    links: int,
    byte_scale: int,
    keeps: bool = False,
    stream: Stream | None = None,
) -> ArmResult:
    """Reduce the measured requests of one arm in one cell.

    Args:
        asked: how many there should be.
        links: links between the two sites of the workload, for the energy proxy.
        keeps: tiers keep what they can from request to request, so that a local hit may find
            nothing.
        stream: where resampling draws from.
    """
    timed = [row for row in rows if row.timed]
    ttft = [row.ttft_ns for row in timed if row.ttft_ns is not None]
    failed = [
        f"{row.request_id} ({arm}, repeat {row.repeat}): {row.error or 'no first token'}"
        for row in rows
        if not row.timed
    ]
    misses: Counter[str] = Counter()
    for row in rows:
        misses.update(row.misses)
    return ArmResult(
        arm=arm,
        asked=asked,
        n=len(ttft),
        failed=failed,
        missing=max(0, asked - len(rows)),
        ttft=reduce_ttft(ttft, (stream or Stream(0)).of(arm)),
        spans_ns=median_spans(timed),
        wire_bytes=percentile([row.wire_bytes for row in timed], 0.5) if timed else 0,
        wire_bytes_total=sum(row.wire_bytes for row in rows),
        joules=mean_joules([request_joules(row, numbers, links, byte_scale) for row in timed]),
        sources=dict(sorted(Counter(row.source for row in timed).items())),
        misses=dict(sorted(misses.items())),
        fetched=sum(1 for row in timed if fetched(row)),
        misnamed=[said for row in timed if (said := _misnamed(row, keeps))],
        spans_off=[
            f"{row.request_id} ({arm}): spans differ from the client's TTFT by {off_by(row):.1%}"
            for row in not_additive(timed)
        ],
        worst_span_error=max((off_by(row) for row in timed), default=0.0),
    )


_LOCAL_ARMS = frozenset({"local-hit", *CONTROLS})
"""Served by what lies at the asker, and by nothing that crosses a link."""


def fetched(row: Request) -> bool:
    """The answer stands on KV that came over a link."""
    return row.chunks_remote > 0 and row.wire_bytes > 0


def _misnamed(row: Request, keeps: bool) -> str:
    place = f"{row.request_id} ({row.arm}, repeat {row.repeat})"
    if row.arm == "recompute" and (row.cached_tokens or row.source != "none"):
        return f"{place}: used {row.cached_tokens} cached tokens from {row.source}"
    here = row.source in {"device", "dram", "disk"} and row.cached_tokens > 0
    if row.arm in _LOCAL_ARMS and (not (here or keeps) or row.wire_bytes or row.chunks_remote):
        return f"{place}: served from {row.source} with {row.wire_bytes} bytes over the link"
    return ""
