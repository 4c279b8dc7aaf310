"""Which percentile so many samples carry.

A percentile is a statement about what lies beyond it. Two rules follow, of one kind for all shares:

- **A number**, where at least one sample lies beyond it: n (1 - q) >= 1, so the 99th percentile
  from 100 samples on. With fewer it would be the largest sample under another name.
- **An interval** of 95 %, where order statistics can enclose it at all. The largest of n samples
  misses the q-quantile of what they were drawn from with probability q^n, and no resampling of
  these samples can reach beyond the largest, so q^n <= (1 - 0.95) / 2: from 368 on for the 99th
  percentile (Wilks, "Determination of sample sizes for setting tolerance limits", Annals of
  Mathematical Statistics 12, 1941; Hahn and Meeker, Statistical Intervals, §5.2).

The median is exempt from both: half of the samples lie on each side of it, and its interval says
itself how sure it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from geokv.measure.percentile import percentile

CONFIDENCE = 0.95
"""Of every interval that does not say otherwise."""


def least_for_number(share: float) -> int:
    """Samples from which on the percentile is a number; ``share`` in (0.5, 1)."""
    # Rounding first: 1 / (1 - 0.99) is 99.99999999999991 in floating point.
    return math.ceil(round(1 / (1 - share), 9))


def least_for_interval(share: float, confidence: float = CONFIDENCE) -> int:
    """Samples from which on it has a two-sided interval; ``share`` in (0.5, 1)."""
    return math.ceil(math.log((1 - confidence) / 2) / math.log(share))


def tail(samples: Sequence[int], share: float) -> int | None:
    """The nearest-rank percentile, or None where there are too few samples to carry it."""
    return percentile(samples, share) if len(samples) >= least_for_number(share) else None
