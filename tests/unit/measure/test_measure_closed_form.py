"""Fetch times on paper, against a line that is played through request by request."""

from __future__ import annotations

import random

import pytest

from geokv.measure.closed_form import fetch_ns, knee_bytes, layered_ttft_ns

MS = 1_000_000
RATE = 8_000_000_000  # 1 MB takes 1 ms
MB = 1_000_000


def played(count: int, size: float, rtt: float, rate: int, window: int) -> float:
    """A line that serves requests one after the other, and an asker that keeps ``window`` out."""
    send = size * 8e9 / rate
    free = 0.0
    arrived: list[float] = []
    for number in range(count):
        asked = 0.0 if number < window else arrived[number - window]
        begun = max(asked + rtt / 2, free)
        free = begun + send
        arrived.append(free + rtt / 2)
    return max(arrived)


def test_one_at_a_time_pays_a_round_trip_each() -> None:
    assert fetch_ns(10, MB, 3 * MS, RATE, 1) == 10 * (3 + 1) * MS


def test_enough_at_a_time_pay_one_round_trip() -> None:
    assert fetch_ns(10, MB, 3 * MS, RATE, 4) == (3 + 10) * MS
    assert fetch_ns(10, MB, 3 * MS, RATE, 400) == (3 + 10) * MS


def test_too_few_at_a_time_come_in_rounds() -> None:
    # Two out, each round 3 + 1 ms: 2 + 2 + 1, the last one alone in the third round.
    assert fetch_ns(5, MB, 3 * MS, RATE, 2) == (3 * (3 + 1)) * MS
    assert fetch_ns(6, MB, 3 * MS, RATE, 2) == (3 * (3 + 1) + 1) * MS


def test_no_distance_is_bytes_over_rate_whatever_the_window() -> None:
    assert fetch_ns(7, MB, 0, RATE, 1) == fetch_ns(7, MB, 0, RATE, 16) == 7 * MS


def test_it_is_the_line_played_through() -> None:
    draw = random.Random(7)
    for _ in range(500):
        case = (
            draw.randrange(1, 300),
            draw.uniform(1e3, 1e7),
            draw.choice([0, draw.randrange(20 * MS)]),
            draw.randrange(10**8, 10**11),
            draw.randrange(1, 40),
        )
        assert fetch_ns(*case) == pytest.approx(played(*case), rel=1e-9, abs=2), case


def test_the_knee_is_where_both_forms_meet() -> None:
    knee = knee_bytes(3 * MS, RATE, 4)
    assert knee == MB  # 4 * 1 ms = 3 ms + 1 ms
    # An eighth larger keeps the line busy, an eighth smaller lets it run dry.
    assert fetch_ns(400, knee * 1.125, 3 * MS, RATE, 4) == (3 + 400 * 1.125) * MS
    assert fetch_ns(400, knee * 0.875, 3 * MS, RATE, 4) > (3 + 400 * 0.875) * MS
    assert knee_bytes(3 * MS, RATE, 1) is None


def test_layers_hide_the_shorter_of_load_and_compute() -> None:
    assert layered_ttft_ns(80 * MS, 40 * MS, 4, MS) == (1 + 80 + 10) * MS
    assert layered_ttft_ns(40 * MS, 80 * MS, 4, MS) == (1 + 80 + 10) * MS
    # In one group nothing overlaps.
    assert layered_ttft_ns(80 * MS, 40 * MS, 1, MS) == (1 + 80 + 40) * MS


@pytest.mark.parametrize("case", [(0, 1, 0, 1, 1), (1, 0, 0, 1, 1), (1, 1, -1, 1, 1),
                                  (1, 1, 0, 0, 1), (1, 1, 0, 1, 0)])  # fmt: skip
def test_impossible_ones_are_refused(case: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="impossible"):
        fetch_ns(*case)
