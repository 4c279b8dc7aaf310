"""What reuse buys, and how distance changes it.

With T0 the TTFT of recomputing and T(d) that of a remote hit over d km,
gain(d) = 1 - T(d)/T0. "The effect changes by 8 %" can be read in two ways (the claim
is Tanaka's, MPLS JAPAN 2025; the readings are ours):

- reading A, relative: |gain(d) - gain(0)| / gain(0)
- reading B, percentage points: gain(d) - gain(0)

A within 8 % implies B within 8 points, since a gain is at most 1. A is the one judged.
"""

from __future__ import annotations


def gain(ttft_ns: int, recompute_ns: int) -> float:
    """1 - T/T0: 0 is no gain, negative is a loss.

    Raises:
        ValueError: T0 is not positive.
    """
    if recompute_ns <= 0:
        raise ValueError(f"recomputing cannot take {recompute_ns} ns")
    return 1 - ttft_ns / recompute_ns


def change_percent(gain_here: float, gain_at_zero: float) -> float | None:
    """Reading A in percent, never negative; None when there is no gain at 0 km to change."""
    if gain_at_zero <= 0:
        return None
    return 100 * abs(gain_here - gain_at_zero) / gain_at_zero


def change_points(gain_here: float, gain_at_zero: float) -> float:
    """Reading B in percentage points, with its sign."""
    return 100 * (gain_here - gain_at_zero)
