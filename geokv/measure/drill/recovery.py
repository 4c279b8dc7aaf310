"""How long each fault was felt.

``before`` is fair weather: the requests that had ended when the first fault of the drill took
effect. Detection and rerouting count from the moment the fault took effect; a good answer, the hit
rate, the TTFT and a disk from the moment it had healed, or where it never heals from the former.
Rate and TTFT are back with the first request that has them and with it the ``WINDOW`` that begin
with it, in the order of their sending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geokv.measure.checker.exchanges import Exchange
from geokv.measure.checker.history import Event, History
from geokv.measure.drill.fates import Fates
from geokv.measure.drill.faults import FaultSeen
from geokv.measure.percentile import percentile

WINDOW = 5
TTFT_TOLERANCE = 0.05
HIT_TOLERANCE = 0.05
_QUIET = frozenset({"", "cancelled", "present"})
_SIGNS = ("peer-down", "fenced", "gap", "resync", "disk-down", "fetch", "miss")
_ORDINARY_MISSES = frozenset({"", "absent", "cancelled", "full"})
"""Causes of misses that happen without any fault."""
_OF_A_DISK = frozenset({"disk-full", "disk-slow", "store-outage"})


@dataclass(frozen=True)
class Span:
    """``ns`` is None when it never came; ``said`` is then why, and else what was seen."""

    ns: int | None
    said: str
    n: int = 0
    """How many requests it stands on."""
    unknown: bool = False
    """It may have come: there was nothing to see it by."""


@dataclass(frozen=True)
class Recovery:
    """How long one fault was felt, by each sign of it."""

    fault: FaultSeen
    detected: Span
    rerouted: Span
    first_good: Span
    hit_rate_back: Span
    ttft_back: Span
    disk_back: Span | None
    """Of faults of a disk only."""
    fetches_lost: int

    def spans(self) -> dict[str, Span]:
        """Name, as a promise's without ``_within``, → span."""
        return {
            "detected": self.detected,
            "rerouted": self.rerouted,
            "first_good": self.first_good,
            "hit_rate_back": self.hit_rate_back,
            "ttft_back": self.ttft_back,
            **({} if self.disk_back is None else {"disk_back": self.disk_back}),
        }


def recoveries(history: History, found: Fates, faults: Sequence[FaultSeen]) -> list[Recovery]:
    """Of every fault that took effect, in order."""
    took = sorted(fault.took_ns for fault in faults if fault.took_ns is not None)
    return [
        _recovery(history, found, fault, fault.took_ns, took)
        for fault in faults
        if fault.took_ns is not None
    ]


def _recovery(
    history: History, found: Fates, fault: FaultSeen, took_ns: int, all_took: Sequence[int]
) -> Recovery:
    next_ns = next((t_ns for t_ns in all_took if t_ns > took_ns), None)
    over_ns = fault.healed_ns
    from_ns = took_ns if over_ns is None else over_ns
    before = [
        row
        for row in found.by_request
        if row[0].answer is not None and row[0].answer["done_ns"] <= all_took[0]
    ]
    after = [row for row in found.by_request if row[0].sent_ns >= from_ns]
    sign = _first_sign(history, took_ns, next_ns)
    lost = [
        event
        for event, _ in found.by_fetch
        if event.get("cause", "") not in _QUIET
        and event["t_ns"] >= took_ns
        and (next_ns is None or event["t_ns"] < next_ns)
    ]
    return Recovery(
        fault,
        _detected(sign, took_ns, next_ns),
        _rerouted(history, sign, took_ns, over_ns),
        _first_good(after, from_ns),
        _hit_rate_back(before, after, from_ns),
        _ttft_back(before, after, from_ns),
        _disk_back(history, fault.target, from_ns) if fault.kind in _OF_A_DISK else None,
        len(lost),
    )


def _first_sign(history: History, took_ns: int, next_ns: int | None) -> Event | None:
    """What comes after the next fault took effect may be a sign of that one."""
    for event in history.of(*_SIGNS):
        if event["t_ns"] < took_ns:
            continue
        if next_ns is not None and event["t_ns"] >= next_ns:
            return None
        cause = event.get("cause", "")
        if event["op"] == "fetch" and cause in _QUIET:
            continue
        if event["op"] == "miss" and cause in _ORDINARY_MISSES:
            continue
        return event
    return None


def _detected(sign: Event | None, took_ns: int, next_ns: int | None) -> Span:
    if sign is None and next_ns is not None:
        return Span(None, "no site noticed anything until the next fault took effect")
    if sign is None:
        return Span(None, "no site noticed anything")
    what = " ".join(
        str(part) for part in (sign["op"], sign.get("peer", ""), sign.get("cause", "")) if part
    )
    return Span(sign["t_ns"] - took_ns, f"{what} at {sign['site']}")


def _rerouted(history: History, sign: Event | None, took_ns: int, over_ns: int | None) -> Span:
    if sign is None:
        return Span(None, "nothing was detected, so nothing had to go another way")
    for event in history.of("fetch"):
        if event["t_ns"] <= sign["t_ns"] or event.get("cause"):
            continue
        if over_ns is not None and event["t_ns"] >= over_ns:
            break
        return Span(event["t_ns"] - took_ns, f"{event['site']} fetched from {event['source']}")
    until = "the stream ended" if over_ns is None else "it had healed"
    return Span(None, f"no fetch came before {until}")


def _first_good(after: Sequence[tuple[Exchange, str]], from_ns: int) -> Span:
    good = [
        (one.first_ns, one)
        for one, fate in after
        if one.ok and fate != "wrong" and one.first_ns is not None
    ]
    if not good:
        said = f"none of {len(after)} requests sent after it was answered"
        return Span(None, said, len(after), unknown=not after)
    first_ns, one = min(good, key=lambda item: item[0])
    return Span(first_ns - from_ns, f"request {one.request_id}", 1)


def _hit_rate_back(
    before: Sequence[tuple[Exchange, str]], after: Sequence[tuple[Exchange, str]], from_ns: int
) -> Span:
    if not before:
        return Span(None, "no request had ended before the first fault", unknown=True)
    usual = sum(_hit(one) for one, _ in before) / len(before)
    if not usual:
        said = f"nothing was found cached before either (n = {len(before)})"
        return Span(None, said, len(before), unknown=True)
    for start in range(len(after) - WINDOW + 1):
        window = [one for one, _ in after[start : start + WINDOW]]
        rate = sum(_hit(one) for one in window) / WINDOW
        if _hit(window[0]) and rate >= usual * (1 - HIT_TOLERANCE):
            first_ns = window[0].first_ns or window[0].sent_ns
            said = f"{rate:.2f} of {WINDOW} against {usual:.2f} of {len(before)} before"
            return Span(first_ns - from_ns, said, len(before))
    said = f"not {usual:.2f} (n = {len(before)}) in any {WINDOW} of {len(after)} requests after"
    return Span(None, said, len(before), unknown=len(after) < WINDOW)


def _ttft_back(
    before: Sequence[tuple[Exchange, str]], after: Sequence[tuple[Exchange, str]], from_ns: int
) -> Span:
    usual = [one.ttft_ns for one, _ in before if one.ttft_ns is not None]
    if not usual:
        return Span(None, "no request was answered before the first fault", unknown=True)
    limit_ns = percentile(usual, 0.5) * (1 + TTFT_TOLERANCE)
    for start in range(len(after) - WINDOW + 1):
        window = [one for one, _ in after[start : start + WINDOW]]
        seen = [one.ttft_ns for one in window if one.ttft_ns is not None]
        if len(seen) == WINDOW and seen[0] <= limit_ns and percentile(seen, 0.5) <= limit_ns:
            first_ns = window[0].first_ns or window[0].sent_ns
            said = (
                f"median {percentile(seen, 0.5) / 1e6:.3f} ms of {WINDOW} against "
                f"{percentile(usual, 0.5) / 1e6:.3f} ms of {len(usual)} before"
            )
            return Span(first_ns - from_ns, said, len(usual))
    said = f"no {WINDOW} of {len(after)} requests after have a median of {limit_ns / 1e6:.3f} ms"
    return Span(None, said, len(usual), unknown=len(after) < WINDOW)


def _disk_back(history: History, site: str, from_ns: int) -> Span:
    """One that only takes, or only gives, is not back."""
    seen = []
    for op, did in (("demote", "went down"), ("promote", "came up")):
        first_ns = next(
            (
                int(event["t_ns"])
                for event in history.of(op)
                if event["site"] == site and event["t_ns"] >= from_ns and not event.get("cause")
            ),
            None,
        )
        if first_ns is None:
            return Span(None, f"nothing {did} at {site} any more")
        seen.append((first_ns, f"the first chunk {did}"))
    last_ns, said = max(seen)
    return Span(last_ns - from_ns, f"{said}, and one the other way before")


def _hit(one: Exchange) -> bool:
    return one.ok and one.cached_tokens > 0
