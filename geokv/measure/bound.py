"""The time no remote hit can beat."""

from __future__ import annotations

from geokv.units import NS_PER_S


def lower_bound_ns(rtt_ns: int, wire_bytes: int, rate_bps: int, prefill_ns: int) -> int:
    """RTT + bytes / rate + remaining prefill, rounded to ns.

    The first byte of any KV is one round trip away, the last one a whole transfer
    at line rate later, and the tokens nobody has cached must still be prefilled
    (geokv's own bound; after the TTFT model T = n·RTT + bytes/min(B, W/RTT) + prefill
    with n = 1 and an unlimited window). Headers, lookups, copies, queues and the
    client's own path are left out, so the ratio to it is above 1 by what they cost.

    Args:
        rtt_ns: planned round trip between the two sites.
        wire_bytes: payload moved, already divided by S.
        rate_bps: line rate of the narrowest link as planned, already divided by S.
        prefill_ns: prefill of the tokens that no cache holds; the local-hit arm's
            median prefill span, which computes exactly those.

    Raises:
        ValueError: a rate that is not positive, or anything negative.
    """
    if rate_bps <= 0 or min(rtt_ns, wire_bytes, prefill_ns) < 0:
        raise ValueError(f"impossible bound: {rtt_ns=} {wire_bytes=} {rate_bps=} {prefill_ns=}")
    transfer_ns = (wire_bytes * 8 * NS_PER_S + rate_bps // 2) // rate_bps
    return rtt_ns + transfer_ns + prefill_ns
