"""Percentiles of few samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Interval:
    """What was estimated lies in [low_ns, high_ns] with probability ``confidence``."""

    low_ns: int
    high_ns: int
    confidence: float


def percentile(samples: Sequence[int], share: float) -> int:
    """Nearest rank: the smallest sample that at least ``share`` of all do not exceed.

    Always a value that was seen, so equal runs give equal integers. Whether there are enough
    samples to call it that is asked elsewhere (``statistics/carried.py``).

    Raises:
        ValueError: no samples, or a share outside (0, 1].
    """
    return sorted(samples)[rank(len(samples), share) - 1]


def percentiles(samples: NDArray[Any], share: float, axis: int = -1) -> NDArray[Any]:
    """The same of many at once, along one axis of an array."""
    import numpy as np

    place = rank(samples.shape[axis], share) - 1
    found: NDArray[Any] = np.take(np.partition(samples, place, axis=axis), place, axis=axis)
    return found


def rank(n: int, share: float) -> int:
    """Which of n samples in order that is, from 1 on.

    Raises:
        ValueError: no samples, or a share outside (0, 1].
    """
    if not n:
        raise ValueError("no samples")
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    # Rounding first: 0.99 * 100 is 99.00000000000001 in floating point.
    return math.ceil(round(share * n, 9))
