"""Requests of a stream that compares kinds, kind by kind: over the whole drill, or while a fault
lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geokv.measure.checker.exchanges import Exchange, ttfts_of
from geokv.measure.drill.fates import Fates
from geokv.measure.drill.faults import FaultSeen
from geokv.measure.statistics.intervals import Stream
from geokv.measure.statistics.ttft import Ttft, reduce_ttft
from geokv.units import NS_PER_S

FETCHED, COMPUTED = "cached", "cold"
"""Kinds of a stream that compares fetching with computing."""
ANSWERED = "answered"
"""What requests are called where a stream tells no kinds apart."""


@dataclass(frozen=True)
class Kind:
    """The requests of one kind; no goodput where nothing was fetched.

    Attributes:
        asked: how many were sent.
        remote: how many of the answered had a chunk of another site.
        ttft: of the answered.
        goodput_bps: of the median request that fetched: bytes on the wire over the time from the
            plan to the last byte; not scaled back.
    """

    asked: int
    answered: int
    remote: int
    ttft: Ttft
    goodput_bps: float | None


@dataclass(frozen=True)
class During:
    """What was under way at any time between a fault taking effect and its end."""

    kinds: dict[str, Kind]
    first_remote_ns: int | None
    """From taking effect to the first token of the first request, sent since, that had a chunk of
    another site; None if there was none before the stream ended."""


def by_kind(asked: Sequence[Exchange], stream: Stream | None) -> dict[str, Kind]:
    """Name of the probe → its requests; empty where nothing is compared.

    Args:
        stream: where resampling draws from; None where no interval is to be said.
    """
    names = sorted({str(one.request["probe"]) for one in asked if "probe" in one.request})
    return {
        name: _kind(
            [one for one in asked if one.request.get("probe") == name], stream and stream.of(name)
        )
        for name in names
    }


def during(found: Fates, fault: FaultSeen) -> During | None:
    """None of a fault that was not seen to take effect. No interval is said of its requests: they
    all met the same outage, and of outages it is one sample.
    """
    took_ns = fault.took_ns
    if took_ns is None:
        return None
    rows = [one for one, _ in found.by_request]
    remote = [
        one.first_ns
        for one in rows
        if one.sent_ns >= took_ns and one.chunks_remote and one.first_ns is not None
    ]
    inside = [one for one in rows if fault.felt_by(one)]
    return During(by_kind(inside, None), min(remote) - took_ns if remote else None)


def _kind(asked: Sequence[Exchange], stream: Stream | None) -> Kind:
    rates = sorted(rate for one in asked if (rate := _goodput_bps(one)) is not None)
    return Kind(
        len(asked),
        sum(one.ok for one in asked),
        sum(one.ok and one.chunks_remote > 0 for one in asked),
        reduce_ttft(ttfts_of(asked), stream),
        rates[(len(rates) - 1) // 2] if rates else None,
    )


def _goodput_bps(one: Exchange) -> float | None:
    answer = one.answer
    if answer is None or not one.ok or not one.chunks_remote or not answer.get("spans"):
        return None
    took_ns = int(answer["spans"]["fetch_ns"])
    return answer["wire_bytes"] * 8 * NS_PER_S / took_ns if took_ns > 0 else None
