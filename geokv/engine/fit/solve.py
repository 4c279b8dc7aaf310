"""Least squares that keep times from falling: the few lines of algebra the fits need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from geokv.engine.profile_cost import FitError
from geokv.engine.profile_forms import Curve

Array = NDArray[np.float64]


def non_negative(features: Array, target: Array) -> Array:
    """``x ≥ 0`` with least ``|features·x - target|``.

    Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23: columns enter one
    by one, and leave again when their coefficient would be negative.
    """
    columns = features.shape[1]
    scale = np.linalg.norm(features, axis=0)
    scale[scale == 0] = 1.0
    scaled = features / scale
    inside = np.zeros(columns, dtype=bool)
    x = np.zeros(columns)
    tolerance = 1e-9 * float(np.abs(scaled.T @ target).max(initial=0.0))
    for _ in range(10 * columns):
        gain = scaled.T @ (target - scaled @ x)
        gain[inside] = -np.inf
        if float(gain.max(initial=-np.inf)) <= tolerance:
            break
        inside[int(gain.argmax())] = True
        while True:
            trial = np.zeros(columns)
            trial[inside] = np.linalg.lstsq(scaled[:, inside], target, rcond=None)[0]
            if bool((trial[inside] > 0).all()):
                x = trial
                break
            falling = inside & (trial <= 0)
            step = float((x[falling] / (x[falling] - trial[falling])).min())
            x = x + step * (trial - x)
            inside &= x > 1e-15
            x[~inside] = 0.0
    return np.asarray(x / scale, dtype=np.float64)


def relative(features: Array, seconds: Array, weights: Array | None = None, tail: int = 2) -> Array:
    """``x ≥ 0`` with the least relative error of ``features·x`` against ``seconds``.

    Args:
        weights: how much each point counts; alike when None.
        tail: power of the error that is kept small; above 2 large errors count more, and
            are re-weighted (iteratively reweighted least squares).
    """
    base = np.sqrt(np.ones(len(seconds)) if weights is None else weights)
    extra = np.ones(len(seconds))
    x = np.zeros(features.shape[1])
    for _ in range(1 if tail == 2 else 30):
        scale = base * extra
        x = non_negative(features / seconds[:, None] * scale[:, None], scale)
        error = np.abs(features @ x / seconds - 1)
        extra = (extra + np.clip(error / 0.1, 0.3, 4.0) ** ((tail - 2) / 2)) / 2
    return x


def rising(knots: Sequence[int], at: Array) -> Array:
    """Features ``[points, knots]`` whose non-negative sums are the rising broken lines.

    The first is the value at the first knot, each other the rise up to its knot; the last
    rise goes on beyond.
    """
    columns = [np.ones(len(at))]
    for index, (low, high) in enumerate(pairwise(knots)):
        share = np.maximum((at - low) / (high - low), 0.0)
        columns.append(share if index == len(knots) - 2 else np.minimum(share, 1.0))
    return np.column_stack(columns)


def curve(knots: Sequence[int], rises: Array) -> Curve:
    """The curve whose value and rises :func:`rising` describes."""
    return Curve(at=tuple(knots), seconds=tuple(rounded(value) for value in np.cumsum(rises)))


def fit_curve(at: Array, seconds: Array, knots: Sequence[int]) -> Curve:
    """The rising broken line of least relative error."""
    return curve(knots, relative(rising(knots, at), seconds))


def rounded(value: float, digits: int = 4) -> float:
    """To so many significant digits: what a file states and a fit can tell."""
    return float(f"{value:.{digits}g}")


def error_of(predicted: Sequence[float] | Array, measured: Sequence[float] | Array) -> FitError:
    """Median and 95th percentile of the relative error."""
    found = np.abs(np.asarray(predicted) / np.asarray(measured) - 1)
    return FitError(
        points=len(found),
        median=round(float(np.median(found)), 4),
        p95=round(float(np.percentile(found, 95)), 4),
    )
