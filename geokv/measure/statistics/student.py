"""Student's interval and test, of one estimate each: what a test calls a difference its interval
keeps away from none.

Student, "The probable error of a mean", Biometrika 6, 1908; for two samples with a spread of their
own Welch, "The generalization of 'Student's' problem", Biometrika 34, 1947.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from geokv.measure.statistics.carried import CONFIDENCE


class Estimate(NamedTuple):
    """A mean, or a difference of two, in the samples' unit.

    Attributes:
        low, high: ends of its interval at ``CONFIDENCE``.
        p: two-sided, of its being 0. Below 1 - ``CONFIDENCE`` exactly where the interval does not
            hold 0.
    """

    low: float
    middle: float
    high: float
    p: float


def of_mean(values: Sequence[float]) -> Estimate | None:
    """None of fewer than two. Values that are all one leave no spread: p is 1 of zeros, else 0."""
    k = len(values)
    if k < 2:
        return None
    if len(set(values)) == 1:
        return _certain(values[0])
    middle = sum(values) / k
    return _estimate(middle, (_variance(values) / k) ** 0.5, k - 1)


def of_difference(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """Of the mean of ``second`` less that of ``first``, drawn apart from each other.

    None where a side has fewer than two.
    """
    if min(len(first), len(second)) < 2:
        return None
    middle = sum(second) / len(second) - sum(first) / len(first)
    if len(set(first)) == len(set(second)) == 1:
        return _certain(second[0] - first[0])
    parts = [_variance(side) / len(side) for side in (first, second)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (first, second), strict=True)
    )
    return _estimate(middle, sum(parts) ** 0.5, freedom)


def _estimate(middle: float, error: float, freedom: float) -> Estimate:
    from scipy import stats

    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(middle) / error, freedom))
    return Estimate(middle - half, middle, middle + half, p)


def _certain(value: float) -> Estimate:
    return Estimate(value, value, value, 0.0 if value else 1.0)


def _variance(values: Sequence[float]) -> float:
    middle = sum(values) / len(values)
    return sum((one - middle) ** 2 for one in values) / (len(values) - 1)
