"""How much worse does a model get when the KV of a prefix is not exact?

Judged by what it says of the tokens *after* the prefix, computed once over exact and once over
altered KV: the Kullback-Leibler divergence of its next-token distributions, and how often both
have the same favourite. Perplexity is given for reference and misleads: over KV that is damaged
it can fall, because a flatter or luckier guess at the text is not a more faithful one.

Pure functions on logits ``[positions, vocab]``. Intervals are over positions of one text:
neighbouring positions are not independent, and other texts differ by more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.floating[Any]]
Values = NDArray[np.float64]

_ROWS = 64
_DRAWS = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over positions with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Quality:
    """Altered against exact, over ``positions`` of one text."""

    positions: int
    kl: Estimate
    """KL(exact ‖ altered) per position, nats."""
    top1: Estimate
    """Share of positions whose most likely next token is the same."""
    perplexity: float
    """Of the altered run on the text's own next tokens; 0 positions of it give NaN."""


def compare(exact: Logits, altered: Logits, next_tokens: Sequence[int], seed: int = 0) -> Quality:
    """Judge ``altered`` by ``exact``.

    Args:
        exact, altered: ``[positions, vocab]``.
        next_tokens: what the text goes on with after each position; may be shorter.

    Raises:
        ValueError: shapes differ, or there is no position.
    """
    if exact.shape != altered.shape or exact.ndim != 2 or not len(exact):
        raise ValueError(f"logits must have one shape, got {exact.shape} and {altered.shape}")
    same = exact.argmax(axis=1) == altered.argmax(axis=1)
    return Quality(
        positions=len(exact),
        kl=estimate(divergence(exact, altered), seed),
        top1=share(int(same.sum()), len(same)),
        perplexity=perplexity(altered, next_tokens),
    )


def divergence(exact: Logits, altered: Logits) -> Values:
    """KL(softmax(exact) ‖ softmax(altered)) of each row, nats, computed in float64."""
    found = np.empty(len(exact))
    for start in range(0, len(exact), _ROWS):
        rows = slice(start, start + _ROWS)
        p, q = log_softmax(exact[rows]), log_softmax(altered[rows])
        found[rows] = (np.exp(p) * (p - q)).sum(axis=1)
    return found


def perplexity(logits: Logits, next_tokens: Sequence[int]) -> float:
    """``exp`` of the mean negative log probability of the tokens that really follow."""
    if not len(next_tokens):
        return float("nan")
    picked = [
        float(log_softmax(logits[row : row + 1])[0, token]) for row, token in enumerate(next_tokens)
    ]
    with np.errstate(over="ignore"):
        return float(np.exp(-np.mean(picked)))


def log_softmax(logits: Logits) -> Values:
    """Row by row, float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    shifted: Values = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return shifted


def share(hits: int, of: int) -> Estimate:
    """``hits / of`` with Wilson's interval, which is honest at 0 and 1, where resampling
    what was seen shows no spread at all."""
    mean, z = hits / of, 1.96
    centre = (mean + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * (mean * (1 - mean) / of + z * z / (4 * of * of)) ** 0.5
    return Estimate(mean, max(0.0, centre - half), min(1.0, centre + half))


def estimate(values: Values, seed: int = 0) -> Estimate:
    """Mean with its 95 % percentile interval over resampled positions (bootstrap)."""
    random = np.random.Generator(np.random.PCG64(seed))
    picks = random.integers(len(values), size=(_DRAWS, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high))
