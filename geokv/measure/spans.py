"""Does a request's time to first token add up from its parts?"""

from __future__ import annotations

from collections.abc import Iterable

from geokv.measure.percentile import percentile
from geokv.measure.records import Request, Spans

TOLERANCE = 0.01
SPAN_NAMES = tuple(name.removesuffix("_ns") for name in Spans.__struct_fields__)


def off_by(request: Request) -> float:
    """(|sum of spans - client's TTFT| + what is below zero) / TTFT of a timed request.

    The spans are cut out of the client's own two stamps, so their sum alone could hide a
    step that ended before it began.
    """
    assert request.spans is not None and request.ttft_ns is not None
    if request.ttft_ns <= 0:
        return float("inf")
    values: list[int] = [getattr(request.spans, name) for name in Spans.__struct_fields__]
    below_ns = -sum(value for value in values if value < 0)
    return (abs(request.spans.total_ns - request.ttft_ns) + below_ns) / request.ttft_ns


def not_additive(requests: Iterable[Request]) -> list[Request]:
    """Timed requests whose spans miss the TTFT by more than ``TOLERANCE``."""
    return [row for row in requests if row.timed and off_by(row) > TOLERANCE]


def median_spans(requests: Iterable[Request]) -> dict[str, int]:
    """Span name → nearest-rank median in ns over the timed requests; empty without any.

    Each span's own median: they need not come from one request, so their sum can
    differ a little from the median TTFT.
    """
    spans = [row.spans for row in requests if row.timed and row.spans is not None]
    if not spans:
        return {}
    return {
        name: percentile([getattr(span, f"{name}_ns") for span in spans], 0.5)
        for name in SPAN_NAMES
    }
