"""Mann and Whitney's test against scipy's, and where scipy has no answer."""

from __future__ import annotations

import random

import pytest

from geokv.measure.ranks import mann_whitney

# scipy 1.17.1: mannwhitneyu(..., alternative="two-sided", method="asymptotic")
SCIPY = [
    ([1.1, 2.2, 3.3, 4.4, 5.5], [2.0, 3.0, 6.0, 7.0], 7.0, 0.5402913746074199),
    ([1, 2, 2, 3, 3, 3, 4], [3, 3, 4, 4, 5, 5, 6, 6], 6.0, 0.01076044857859622),
    (list(range(200)), [n + 20.5 for n in range(200)], 16110.0, 0.0007676500727869921),
    (
        [n % 7 for n in range(200)],
        [n * n % 7 for n in range(210)],
        26805.0,
        8.443473940801128e-07,
    ),
]


@pytest.mark.parametrize(("first", "second", "u", "p"), SCIPY)
def test_it_is_what_scipy_says(first, second, u, p):
    seen = mann_whitney(first, second)
    assert seen.u == u
    assert seen.p == pytest.approx(p, rel=1e-9)
    assert seen.effect == pytest.approx(2 * u / len(first) / len(second) - 1)
    back = mann_whitney(second, first)
    assert back.p == pytest.approx(p, rel=1e-9) and back.effect == pytest.approx(-seen.effect)


def test_one_value_is_no_difference_and_no_sample_no_question():
    assert mann_whitney([5.0] * 30, [5.0] * 40) == (600.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="empty"):
        mann_whitney([], [1.0])


def test_of_equal_laws_as_few_are_told_apart_as_it_promises():
    rng = random.Random(7)
    called = 0
    for _ in range(400):
        samples = [[rng.choice([1, 2, 2, 3, 5, 8]) for _ in range(60)] for _ in range(2)]
        called += mann_whitney(*samples).p < 0.05
    # A twentieth of 400 is 20; five standard deviations of that count are 22.
    assert 4 <= called <= 42
