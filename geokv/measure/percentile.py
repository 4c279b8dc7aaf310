"""Percentiles of few samples, and how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The true median lies in [low_ns, high_ns] with probability ``confidence``."""

    low_ns: int
    high_ns: int
    confidence: float


def percentile(samples: Sequence[int], share: float) -> int:
    """Nearest rank: the smallest sample that at least ``share`` of all do not exceed.

    Always a value that was seen, so equal runs give equal integers. With fewer than
    100 samples the 99th percentile is the largest one.

    Raises:
        ValueError: no samples, or a share outside (0, 1].
    """
    if not samples:
        raise ValueError("no samples")
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    # Rounding first: 0.99 * 100 is 99.00000000000001 in floating point.
    rank = math.ceil(round(share * len(samples), 9))
    return sorted(samples)[rank - 1]


def median_interval(samples: Sequence[int], confidence: float = 0.95) -> Interval:
    """Distribution-free interval of the median from order statistics.

    The narrowest symmetric pair of order statistics (k-th smallest, k-th largest)
    that covers the median with at least ``confidence``; for fewer than 6 samples no
    pair reaches 95 %, and the extremes are given with the confidence they do have
    (5 samples: 93.75 %). Coverage is 1 - 2 P(Bin(n, 1/2) < k), David & Nagaraja,
    Order Statistics, 3rd ed., §7.1.

    Raises:
        ValueError: no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    n = len(ordered)
    best = 1
    while best < n - best and _coverage(n, best + 1) >= confidence:
        best += 1
    return Interval(ordered[best - 1], ordered[n - best], _coverage(n, best))


def _coverage(n: int, k: int) -> float:
    below = sum(math.comb(n, i) for i in range(k))
    return 1 - below / float(2 ** (n - 1))
