"""KL, agreement and perplexity against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from geokv.measure.quality import compare, divergence, estimate, perplexity, share


def logits(*rows: list[float]) -> np.ndarray:
    """Rows of probabilities as logits; any constant may be added to a row."""
    return np.log(np.array(rows)) + np.arange(len(rows))[:, None] * 100


def test_divergence_by_hand() -> None:
    exact = logits([0.5, 0.25, 0.25], [0.9, 0.05, 0.05])
    altered = logits([0.25, 0.5, 0.25], [0.9, 0.05, 0.05])
    # 0.5 ln 2 - 0.25 ln 2
    assert divergence(exact, altered) == pytest.approx([0.25 * math.log(2), 0.0], abs=1e-12)


def test_divergence_is_of_exact_from_altered_and_not_the_other_way() -> None:
    sure, unsure = logits([0.98, 0.01, 0.01]), logits([0.4, 0.3, 0.3])
    one = 0.98 * math.log(0.98 / 0.4) + 0.02 * math.log(0.01 / 0.3)
    other = 0.4 * math.log(0.4 / 0.98) + 0.6 * math.log(0.3 / 0.01)
    assert divergence(sure, unsure)[0] == pytest.approx(one)
    assert divergence(unsure, sure)[0] == pytest.approx(other)
    assert abs(one - other) > 0.1


def test_equal_logits_differ_by_nothing_and_large_ones_do_not_overflow() -> None:
    random = np.random.default_rng(1)
    exact = random.standard_normal((200, 50)).astype(np.float32) * 1e4
    quality = compare(exact, exact.copy(), list(range(50)))
    assert quality.kl.mean == quality.kl.low == quality.kl.high == 0
    assert quality.top1.mean == 1 and quality.positions == 200


def test_agreement_counts_positions() -> None:
    exact = logits(*[[0.6, 0.4]] * 10)
    altered = logits(*[[0.6, 0.4]] * 7, *[[0.4, 0.6]] * 3)
    quality = compare(exact, altered, [])
    assert quality.top1.mean == 0.7
    assert math.isnan(quality.perplexity)


def test_perplexity_by_hand() -> None:
    rows = logits([0.5, 0.5], [0.25, 0.75], [0.1, 0.9])
    assert perplexity(rows, [0, 0]) == pytest.approx(math.sqrt(2 * 4))


def test_wilson_interval_is_open_at_the_ends() -> None:
    whole = share(476, 476)
    assert whole.mean == whole.high == 1 and whole.low == pytest.approx(0.992, abs=5e-4)
    half = share(50, 100)
    # Wilson's published example: 0.5 of 100 is 0.404 … 0.596.
    assert (half.low, half.high) == pytest.approx((0.404, 0.596), abs=1e-3)


def test_bootstrap_interval_is_that_of_the_mean() -> None:
    values = np.random.default_rng(2).standard_normal(400) + 5
    found = estimate(values)
    # 1.96 / sqrt(400) on either side.
    assert found.high - found.mean == pytest.approx(0.098, rel=0.2)
    assert found.mean - found.low == pytest.approx(0.098, rel=0.2)
    assert estimate(values) == found


@pytest.mark.parametrize("shape", [(3, 4), (2, 5), (0, 4)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="one shape"):
        compare(np.zeros((2, 4)) if shape[0] else np.zeros(shape), np.zeros(shape), [])
