"""Intervals of the mean and of percentiles, by the bootstrap of scipy.

The mean's is bias-corrected and accelerated (BCa: Efron, "Better bootstrap confidence intervals",
JASA 82, 1987). A percentile is no smooth function of its samples, which BCa's acceleration asks
for; its interval is the percentile bootstrap's (Efron and Tibshirani, An Introduction to the
Bootstrap, §13.3). What that gives are two of the samples, and how often such a pair encloses the
true percentile is known without any assumption (David and Nagaraja, Order Statistics, 3rd ed.,
§7.1). Where that is less than was asked for, as it is far out in a tail, the ends move outwards
from sample to sample until it is not; where there are no more samples (five of a median) the
interval says what confidence it has.

Every draw comes from a stream of its own that the run's seed and the interval's name begin, so the
same records give the same intervals, whatever else is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geokv.measure.percentile import Interval, percentiles
from geokv.measure.statistics.carried import CONFIDENCE, least_for_interval

RESAMPLES = 2000
LEAST_FOR_MEAN = 15
"""With fewer an interval of 95 % holds less often than nine times in ten (ours, of exponential and
log-normal samples: 0.80 of five, 0.88 of ten, 0.91 of fifteen): the bootstrap of n samples is
narrower than it should be by about sqrt((n - 1) / n), and knows nothing of Student's wider tails
(Hesterberg, "What teachers should know about the bootstrap", American Statistician 69, 2015)."""
_AT_ONCE = 2_000_000
"""Numbers that are drawn together."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """Random numbers that depend on a seed and on what they are for, and on nothing else."""

    seed: int
    words: tuple[str, ...] = ()

    def of(self, *words: str) -> Stream:
        """One for a part of it."""
        return Stream(self.seed, (*self.words, *words))

    def numbers(self) -> np.random.Generator:
        """From its beginning."""
        digest = hashlib.blake2b("/".join(self.words).encode(), digest_size=8).digest()
        return np.random.default_rng([self.seed, int.from_bytes(digest, "big")])


def mean_interval(samples: Sequence[int], stream: Stream) -> Interval | None:
    """Of the mean, in the samples' unit; None below ``LEAST_FOR_MEAN`` samples."""
    if len(samples) < LEAST_FOR_MEAN:
        return None
    if len(set(samples)) == 1:
        return Interval(samples[0], samples[0], CONFIDENCE)
    low, high = resampled((samples,), lambda one, axis: one.mean(axis=axis), stream, "BCa")
    return Interval(round(low), round(high), CONFIDENCE)


def percentile_interval(samples: Sequence[int], share: float, stream: Stream) -> Interval | None:
    """Of a percentile, with the confidence that its two ends have as order statistics.

    None without samples, and above the median below ``least_for_interval``.
    """
    if not samples or (share > 0.5 and len(samples) < least_for_interval(share)):
        return None

    def nearest_rank(one: Values, axis: int = -1) -> Values:
        return percentiles(one, share, axis)

    if len(set(samples)) == 1:
        low = high = float(samples[0])
    else:
        low, high = resampled((samples,), nearest_rank, stream, "percentile")
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    # Interpolation may end between two samples: outwards to the next ones.
    first = max(int(np.searchsorted(ordered, low, side="right")) - 1, 0)
    last = min(int(np.searchsorted(ordered, high, side="left")), len(samples) - 1)
    first, last, covers = _widened(len(samples), share, first, last)
    return Interval(int(ordered[first]), int(ordered[last]), covers)


def resampled(
    data: Sequence[Sequence[float]],
    statistic: Callable[..., Any],
    stream: Stream,
    method: str,
) -> tuple[float, float]:
    """Ends of the bootstrap interval at ``CONFIDENCE``.

    Args:
        data: one or several samples, each drawn anew by itself.
        statistic: takes as many arrays and ``axis``.
    """
    from scipy import stats

    found = stats.bootstrap(
        [np.asarray(one, dtype=np.float64) for one in data],
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, _AT_ONCE // max(len(one) for one in data)),
        vectorized=True,
        confidence_level=CONFIDENCE,
        method=method,
        rng=stream.numbers(),
    ).confidence_interval
    return float(found.low), float(found.high)


def _widened(n: int, share: float, first: int, last: int) -> tuple[int, int, float]:
    """Places of two of n ordered samples, from 0 on, with the confidence they have together: at
    least ``CONFIDENCE`` if there are such. Each step goes to the side where more is to be had."""
    from scipy import stats

    chance = stats.binom.pmf(np.arange(n + 1), n, share)
    covers = float(chance[first + 1 : last + 1].sum())
    while covers < CONFIDENCE and (first > 0 or last < n - 1):
        below = chance[first] if first > 0 else -1.0
        above = chance[last + 1] if last < n - 1 else -1.0
        first, last = (first - 1, last) if below > above else (first, last + 1)
        covers = float(chance[first + 1 : last + 1].sum())
    return first, last, covers
