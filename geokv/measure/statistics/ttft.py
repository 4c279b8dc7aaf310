"""The times to first token of one arm, or of one kind of request, in one cell, with how sure they
are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geokv.measure.percentile import Interval, percentile
from geokv.measure.statistics.carried import tail
from geokv.measure.statistics.intervals import Stream, mean_interval, percentile_interval


@dataclass(frozen=True)
class Ttft:
    """None is what there is nothing for, or too few samples to carry it.

    Attributes:
        samples_ns: of the timed requests, in the order of their repeats, or of sending.
        per_seed: whether numbers and intervals are over the seeds of a run and not over its
            requests; see ``replicates.py``.
    """

    samples_ns: tuple[int, ...]
    mean_ns: int | None
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    mean_interval: Interval | None
    p50_interval: Interval | None
    p99_interval: Interval | None
    per_seed: bool = False


def reduce_ttft(samples_ns: Sequence[int], stream: Stream | None) -> Ttft:
    """Reduce the samples of one arm, or of one kind of request, in one cell.

    Args:
        stream: where resampling draws from; each interval has one of its own. None where no
            interval is to be said.
    """
    n = len(samples_ns)
    return Ttft(
        samples_ns=tuple(samples_ns),
        mean_ns=round(sum(samples_ns) / n) if n else None,
        p50_ns=percentile(samples_ns, 0.5) if n else None,
        p99_ns=tail(samples_ns, 0.99),
        max_ns=max(samples_ns, default=None),
        mean_interval=mean_interval(samples_ns, stream.of("mean")) if stream else None,
        p50_interval=percentile_interval(samples_ns, 0.5, stream.of("p50")) if stream else None,
        p99_interval=percentile_interval(samples_ns, 0.99, stream.of("p99")) if stream else None,
    )
