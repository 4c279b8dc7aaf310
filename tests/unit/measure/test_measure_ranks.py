"""Mann and Whitney's test: of few samples by counting, of many as it was before scipy did it."""

from __future__ import annotations

import itertools
import random

import pytest

from geokv.measure.ranks import least_p, mann_whitney

FEW = [
    ([1.1, 2.2, 3.3, 4.4, 5.5], [2.0, 3.0, 6.0, 7.0], 7.0),
    ([1, 2, 2, 3, 3, 3, 4], [3, 3, 4, 4, 5, 5], 6.0),
    ([1, 1, 1, 1, 1], [2, 2, 2, 2, 2], 0.0),
]
# What the normal approximation with ties and continuity corrected for gives.
MANY = [
    (list(range(200)), [n + 20.5 for n in range(200)], 16110.0, 0.0007676500727869921),
    ([n % 7 for n in range(200)], [n * n % 7 for n in range(210)], 26805.0, 8.443473940801128e-07),
]


def pairs_won(first, second) -> float:
    return sum((a > b) + (a == b) / 2 for a in first for b in second)


@pytest.mark.parametrize(("first", "second", "u"), FEW)
def test_of_few_every_way_to_divide_them_is_counted(first, second, u):
    seen = mann_whitney(first, second)
    assert seen.u == u == pairs_won(first, second)
    both = [*first, *second]
    wins = []
    for places in itertools.combinations(range(len(both)), len(first)):
        mine = [both[place] for place in places]
        rest = [both[place] for place in range(len(both)) if place not in places]
        wins.append(pairs_won(mine, rest))
    tails = sum(one <= u for one in wins), sum(one >= u for one in wins)
    assert seen.p == pytest.approx(min(1.0, 2 * min(tails) / len(wins)), rel=1e-9)
    assert seen.p >= least_p(len(first), len(second)) - 1e-12
    assert seen.effect == pytest.approx(2 * u / len(first) / len(second) - 1)


@pytest.mark.parametrize(("first", "second", "u", "p"), MANY)
def test_of_many_it_is_the_normal_approximation(first, second, u, p):
    seen = mann_whitney(first, second)
    assert seen.u == u
    assert seen.p == pytest.approx(p, rel=1e-9)
    back = mann_whitney(second, first)
    assert back.p == pytest.approx(p, rel=1e-9) and back.effect == pytest.approx(-seen.effect)


def test_too_few_can_show_nothing():
    assert least_p(5, 5) == pytest.approx(2 / 252)
    assert least_p(3, 3) == pytest.approx(0.1)
    assert least_p(1, 1) == 1.0
    assert mann_whitney([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]).p == pytest.approx(0.1)


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
