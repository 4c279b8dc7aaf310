"""When is it worth moving KV instead of computing it again?

Computing a prefix of p tokens costs l·(a·p²·d + b·p·d²) FLOP, its KV is p·l·(2·d/gqa)·s bytes
(Mooncake, FAST 2025, §2: l layers, width d, GQA ratio gqa, s bytes per number; a and b count the
operations of attention and of the matrices). Moving at B bytes/s beats computing at G FLOP/s when

    B / G > 2·d·s / (gqa·(a·p·d + b·d²))

in which the layers cancel out. For LLaMA-3 70B (d = 8192, a = 4, b = 22, gqa = 8, s = 2) and
p = 8192 that is 2.35e-6 byte/FLOP: 5.9 GB/s against eight A800 (312 TFLOP/s each), 18.6 GB/s
against eight H800 (989). The paper rounds to 6 and 19.

The formula knows no distance and no profile, and has every GPU at its peak. Where a run has
measured what computing takes, the same balance with a round trip is ``least_rate_bps``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from geokv.units import NS_PER_S


def bytes_per_flop(
    prefix_tokens: int, width: int, gqa: float, a: float = 4, b: float = 22, number_bytes: int = 2
) -> float:
    """B/G at which moving and computing take the same time, in bytes per FLOP.

    Args:
        width: of the model, d.
        gqa: query heads per KV head.

    Raises:
        ValueError: something that is not positive.
    """
    if min(prefix_tokens, width, gqa, a, b, number_bytes) <= 0:
        raise ValueError(f"impossible: {prefix_tokens=} {width=} {gqa=} {a=} {b=} {number_bytes=}")
    flop = gqa * (a * prefix_tokens * width + b * width**2)
    return 2 * width * number_bytes / flop


def least_rate_bps(kv_bytes: int, saved_ns: int, rtt_ns: int, rtts: int) -> float | None:
    """Line rate (bit/s) from which on fetching is faster than computing.

    bytes / B + rtts·RTT = the prefill time that a hit saves; None when the round trips alone
    take longer.

    Args:
        kv_bytes: moved, at full size.
        saved_ns: prefill of everything, less prefill of what no cache has, less the copies to
            the device that nothing hides.
        rtts: round trips a remote hit pays: its lookup, where the table is elsewhere, and its
            fetch.
    """
    left_ns = saved_ns - rtts * rtt_ns
    return kv_bytes * 8 * NS_PER_S / left_ns if left_ns > 0 else None


def crossing(rates: Sequence[float], ratios: Sequence[float]) -> float | None:
    """The rate at which TTFT(remote) / TTFT(recompute) passes 1, between two samples.

    A remote hit takes some time and bytes over rate, so its TTFT is a straight line over one
    over the rate, and the crossing of that line is exact as long as the line is the bottleneck.

    Args:
        rates: rising and positive.
        ratios: one per rate.

    Returns:
        None when all samples lie on one side of 1.
    """
    points = list(zip(rates, ratios, strict=True))
    for (rate, ratio), (next_rate, next_ratio) in pairwise(points):
        if (ratio > 1) != (next_ratio > 1):
            share = (ratio - 1) / (ratio - next_ratio)
            return 1 / (1 / rate + share * (1 / next_rate - 1 / rate))
    return None
