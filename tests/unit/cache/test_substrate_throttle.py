"""Token buckets: exact to the nanosecond, whatever the rate and the pieces."""

from __future__ import annotations

import random

import pytest

from geokv.cache.substrate.tcp.throttle import Throttle, TokenBucket
from geokv.errors import ConfigError
from geokv.units import NS_PER_S


@pytest.mark.parametrize("rate", [1, 7, 1_000_003, 10**9, 10**11 + 3])
def test_so_many_bytes_take_exactly_so_long(rate: int) -> None:
    bucket = TokenBucket(rate, burst_bytes=1000)
    rng = random.Random(rate)
    now, sent = 5_000_000_007, 0
    start = now
    while sent < 100_000:
        piece = rng.randrange(1, 1000)
        now = bucket.take(piece, now)  # sent as soon as it may be
        sent += piece
        want = -(-(sent - 1000) * 8 * NS_PER_S // rate)
        assert now == start + max(want, 0)


def test_a_burst_goes_at_once_and_idle_time_earns_no_second_one() -> None:
    bucket = TokenBucket(8 * 10**6, burst_bytes=500)  # a byte per µs
    assert bucket.take(500, 0) == 0
    assert bucket.take(100, 0) == 100_000
    later = 10**12
    assert bucket.take(500, later) == later
    assert bucket.take(1, later) == later + 1000


def test_the_slower_of_two_caps_decides() -> None:
    throttle = Throttle({"acme": 8 * 10**9}, {"b": 8 * 10**6})
    assert throttle.caps("b", "x") and throttle.caps("c", "acme") and not throttle.caps("c", "x")
    assert throttle.take("c", "x", 10**9, 5) == 5
    first = throttle.take("b", "acme", 2**18, 0)
    assert first == 0
    assert throttle.take("b", "acme", 1000, 0) == 1_000_000  # of the link
    assert throttle.take("c", "acme", 1000, 0) == 2000  # of the tenant, which sent both


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (-5, 1)])
def test_caps_that_are_none(numbers: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="rate cap"):
        TokenBucket(*numbers)
