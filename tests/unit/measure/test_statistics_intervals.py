"""Intervals: as often right as they say, of every n the same twice, and none of too few."""

from __future__ import annotations

import random

import pytest

from geokv.measure.statistics.carried import least_for_interval, least_for_number, tail
from geokv.measure.statistics.intervals import (
    LEAST_FOR_MEAN,
    Stream,
    mean_interval,
    percentile_interval,
)


def test_a_percentile_needs_a_sample_beyond_it() -> None:
    assert [least_for_number(share) for share in (0.9, 0.95, 0.99, 0.999)] == [10, 20, 100, 1000]
    assert tail(list(range(99)), 0.99) is None
    assert tail(list(range(1, 101)), 0.99) == 99
    assert tail([], 0.99) is None


def test_an_interval_needs_a_largest_sample_that_is_beyond_it_for_sure() -> None:
    # 0.99**367 = 0.02500..., 0.99**368 = 0.0248: Wilks' n for 97.5 % on one side.
    assert least_for_interval(0.99) == 368
    assert 0.99**368 <= 0.025 < 0.99**367
    assert least_for_interval(0.95) == 72


def test_of_a_few_the_median_lies_between_the_extremes_and_it_is_said_how_surely() -> None:
    interval = percentile_interval([5, 1, 3, 2, 4], 0.5, Stream(1))
    assert interval is not None
    assert (interval.low_ns, interval.high_ns) == (1, 5)
    assert interval.confidence == pytest.approx(0.9375)  # 1 - 2/32
    alone = percentile_interval([7], 0.5, Stream(1))
    assert alone is not None and (alone.low_ns, alone.high_ns, alone.confidence) == (7, 7, 0)
    assert percentile_interval([], 0.5, Stream(1)) is None


def test_of_ten_it_is_wide_enough() -> None:
    # Tables of the sign test: no pair of ten samples inside the 2nd and 9th reaches 95 %.
    interval = percentile_interval(list(range(1, 11)), 0.5, Stream(1))
    assert interval is not None
    assert interval.low_ns <= 2 or interval.high_ns >= 9
    assert interval.confidence >= 0.95


def test_of_one_value_it_is_that_value() -> None:
    for samples in ([8] * 5, [8] * 400):
        for share in (0.5, 0.99):
            interval = percentile_interval(samples, share, Stream(1))
            assert interval is None or (interval.low_ns, interval.high_ns) == (8, 8)
    mean = mean_interval([8] * LEAST_FOR_MEAN, Stream(1))
    assert mean is not None and (mean.low_ns, mean.high_ns) == (8, 8)


def test_too_few_have_none() -> None:
    assert percentile_interval(list(range(367)), 0.99, Stream(1)) is None
    assert percentile_interval(list(range(368)), 0.99, Stream(1)) is not None
    assert mean_interval(list(range(LEAST_FOR_MEAN - 1)), Stream(1)) is None


def test_the_same_samples_and_seed_give_the_same_ends_and_another_name_other_draws() -> None:
    draw = random.Random(3)
    samples = [draw.randrange(10**9) for _ in range(40)]
    assert mean_interval(samples, Stream(5, ("a",))) == mean_interval(samples, Stream(5, ("a",)))
    ends = {
        (found.low_ns, found.high_ns)
        for stream in (Stream(5, ("a",)), Stream(5, ("b",)), Stream(6, ("a",)))
        if (found := mean_interval(samples, stream)) is not None
    }
    assert len(ends) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("n", "share", "runs"), [(15, 0.5, 300), (60, 0.5, 200), (400, 0.99, 120)])
def test_percentiles_are_enclosed_as_often_as_is_said(n: int, share: float, runs: int) -> None:
    draw = random.Random(5)
    hits, promised = 0, 0.0
    for run in range(runs):
        samples = [draw.randrange(1_000_000) for _ in range(n)]
        interval = percentile_interval(samples, share, Stream(run))
        assert interval is not None
        assert interval.confidence >= 0.95
        promised += interval.confidence
        hits += interval.low_ns <= share * 1_000_000 <= interval.high_ns
    # Three standard deviations of the count of hits.
    assert hits / runs == pytest.approx(promised / runs, abs=3 * (0.04 / runs) ** 0.5 + 0.01)


@pytest.mark.slow
def test_means_of_skewed_samples_are_enclosed_nine_times_in_ten() -> None:
    draw = random.Random(7)
    hits = 0
    for run in range(300):
        samples = [round(1e6 * draw.expovariate(1)) for _ in range(LEAST_FOR_MEAN)]
        interval = mean_interval(samples, Stream(run))
        assert interval is not None
        hits += interval.low_ns <= 1e6 <= interval.high_ns
    assert 0.85 <= hits / 300 <= 0.98
