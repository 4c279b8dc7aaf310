"""How long a fetch takes, on paper.

A prefix comes as n transfers of c bytes over a line of payload rate R and round trip r, of which
at most W are asked for at any time (streams × in flight). A transfer's bytes take s = c / R on
the line, and bytes of different transfers never share it.

- The first transfer is whole at r + s: one round trip, then its own bytes.
- While W·s < r + s the line runs dry: a place is free again only when its transfer is whole, and
  what is asked for then comes r + s later. Transfers arrive in rounds of W, r + s apart; with
  n - 1 = q·W + j the last one arrives at ``(q + 1)·r + (q + j + 1)·s``.
  One at a time (W = 1) this is n·(r + s): *n round trips*, P/D-Serve's block-wise transfer and
  LMCache's page-wise one (papers: arXiv 2408.08147, arXiv 2510.09665).
- Otherwise the line never waits: ``r + n·s``, one round trip and the bytes.

Both are the same where W·s = r + s, the *knee*: the size ``c = r·R / (W - 1)`` from which on
transfers are large enough. With W = 1 there is none, goodput only nears R as c outgrows r·R
(half of R at c = r·R).

Layer by layer, a chunk comes as g transfers of c / g bytes, group 0 of all chunks first. The wire
takes the same bytes in g times as many transfers; what is gained is that computing begins after
the first group: ``layered_ttft_ns``.

Left out: headers, requests on the way back, congestion windows (warm connections have open
ones), the receiver's copies.
"""

from __future__ import annotations

from geokv.units import NS_PER_S


def fetch_ns(count: int, size_bytes: float, rtt_ns: int, rate_bps: int, window: int) -> int:
    """Time from the first request to the last byte of ``count`` transfers, in ns.

    Args:
        size_bytes: of one transfer, as moved (divided by S where the rate is).
        rate_bps: payload bit/s of the line.
        window: transfers asked for at the same time, streams × in flight.

    Raises:
        ValueError: a rate, a window or a count that is not positive, or a negative time.
    """
    if min(count, window, rate_bps) < 1 or rtt_ns < 0 or size_bytes <= 0:
        raise ValueError(f"impossible: {count=} {size_bytes=} {rtt_ns=} {rate_bps=} {window=}")
    send_ns = size_bytes * 8 * NS_PER_S / rate_bps
    if window * send_ns >= rtt_ns + send_ns:
        return round(rtt_ns + count * send_ns)
    rounds, last = divmod(count - 1, window)
    return round((rounds + 1) * rtt_ns + (rounds + last + 1) * send_ns)


def knee_bytes(rtt_ns: int, rate_bps: int, window: int) -> float | None:
    """Smallest transfer that keeps the line busy, in bytes; None when one at a time never does."""
    if window <= 1:
        return None
    return rtt_ns * rate_bps / (8 * NS_PER_S) / (window - 1)


def layered_ttft_ns(load_ns: int, compute_ns: int, groups: int, rtt_ns: int) -> int:
    """What a remote hit whose layers are computed as they come must stay under.

    ``max(load, compute) + one layer group + RTT``: the longer of both runs through, the other
    hides behind it but for the one group that it cannot begin without (LMCache's layer-wise
    pipelining, arXiv 2510.09665).

    Args:
        load_ns: bytes / rate, without the round trip.
        compute_ns: prefill of the tokens that nobody has.
        groups: parts the layers come in.
    """
    longer, shorter = max(load_ns, compute_ns), min(load_ns, compute_ns)
    return rtt_ns + longer + -(-shorter // groups)
