"""The arithmetic, against numbers worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from geokv.measure.bound import lower_bound_ns
from geokv.measure.gain import change_percent, change_points, gain
from geokv.measure.percentile import percentile


def test_nearest_rank() -> None:
    five = [50, 10, 40, 20, 30]
    assert percentile(five, 0.5) == 30
    assert percentile(five, 0.99) == 50
    assert percentile(five, 0.2) == 10
    assert percentile([1, 2], 0.5) == 1
    hundred = list(range(1, 101))
    assert percentile(hundred, 0.99) == 99
    assert percentile(hundred, 0.5) == 50
    assert percentile(hundred, 1) == 100


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="share"):
        percentile([1], 0)


def test_lower_bound() -> None:
    # 1 ms + 2**28 bytes at 25 Gb/s (85.899346 ms) + 10 ms
    bound = lower_bound_ns(1_000_000, 2**28, 25_000_000_000, 10_000_000)
    assert bound == 1_000_000 + 85_899_346 + 10_000_000
    assert lower_bound_ns(0, 0, 1, 0) == 0
    with pytest.raises(ValueError, match="impossible"):
        lower_bound_ns(0, 0, 0, 0)


def test_gain_and_its_two_readings() -> None:
    assert gain(100, 500) == pytest.approx(0.8)
    assert gain(600, 500) == pytest.approx(-0.2)
    # gain falls from 0.8 to 0.76: 5 % of it, 4 points
    assert change_percent(0.76, 0.8) == pytest.approx(5)
    assert change_points(0.76, 0.8) == pytest.approx(-4)
    assert change_percent(0.84, 0.8) == pytest.approx(5), "a rise is a change too"
    assert change_percent(0.5, 0.0) is None
    assert change_percent(0.5, -0.1) is None


def test_reading_a_is_the_stricter_one() -> None:
    draw = random.Random(1)
    for _ in range(1000):
        zero, here = draw.uniform(0.01, 1), draw.uniform(-1, 1)
        relative = change_percent(here, zero)
        assert relative is not None
        assert relative >= math.fabs(change_points(here, zero)) - 1e-9
