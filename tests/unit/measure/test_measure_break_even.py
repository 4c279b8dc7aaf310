"""When fetching pays: the published figures, and our balance with a round trip."""

from __future__ import annotations

import pytest

from geokv.measure.break_even import bytes_per_flop, crossing, least_rate_bps

TFLOP = 1e12
MS = 1_000_000


def test_mooncakes_two_figures() -> None:
    """FAST 2025, §2: LLaMA-3 70B, 8192 tokens, eight A800 and eight H800."""
    ratio = bytes_per_flop(8192, width=8192, gqa=8)
    assert ratio == pytest.approx(2.35e-6, rel=0.002)
    assert ratio * 8 * 312 * TFLOP / 1e9 == pytest.approx(5.9, abs=0.05)
    assert ratio * 8 * 989 * TFLOP / 1e9 == pytest.approx(18.6, abs=0.05)


def test_longer_prefixes_need_less() -> None:
    assert bytes_per_flop(131072, 8192, 8) < bytes_per_flop(1024, 8192, 8)


def test_least_rate_balances_bytes_round_trips_and_prefill() -> None:
    # 100 MB in 100 ms of saved prefill: 8 Gb/s; two round trips of 10 ms leave 80 ms: 10 Gb/s.
    assert least_rate_bps(10**8, 100 * MS, 0, 1) == 8e9
    assert least_rate_bps(10**8, 100 * MS, 10 * MS, 2) == 1e10
    assert least_rate_bps(10**8, 20 * MS, 10 * MS, 2) is None


def test_crossing_is_exact_for_a_time_that_falls_with_the_rate() -> None:
    # ratio = 0.5 + 10 / rate passes 1 at a rate of 20.
    rates = [1.0, 10.0, 25.0, 100.0]
    assert crossing(rates, [0.5 + 10 / rate for rate in rates]) == pytest.approx(20)
    assert crossing([20.0, 40.0], [1.0, 0.75]) is None  # already even at the first
    assert crossing(rates, [0.9, 0.8, 0.7, 0.6]) is None
    assert crossing(rates, [9, 8, 7, 6]) is None
    assert crossing([], []) is None
