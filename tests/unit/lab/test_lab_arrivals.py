"""Which packets of a look are known to be lost."""

from __future__ import annotations

import pytest

from geokv.lab.arrivals import lost_in_a_row

SENT = [(number, 1000 * number) for number in range(6)]


@pytest.mark.parametrize(
    ("came", "given_up_ns", "lost"),
    [
        # Nothing came: those are lost that were sent long enough ago, and of the rest nobody knows.
        ((), 2000, [0, 1000, 2000]),
        ((), -1, []),
        # A later one came: what was sent before it does not come any more.
        ((3,), -1, []),
        ((0, 5), -1, []),
        # The latest in a row, not those before one that came.
        ((0, 3), 5000, [4000, 5000]),
        ((4,), 5000, [5000]),
    ],
)
def test_the_latest_that_are_lost(came: tuple[int, ...], given_up_ns: int, lost: list[int]) -> None:
    assert lost_in_a_row(SENT, dict.fromkeys(came, 1), given_up_ns) == lost


def test_what_was_overtaken_is_lost_before_its_time_is_over() -> None:
    assert lost_in_a_row(SENT[:3], {5: 1}, given_up_ns=-1) == [0, 1000, 2000]
