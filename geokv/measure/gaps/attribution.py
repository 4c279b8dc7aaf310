"""MG6: which part of the time to first token makes the worst 1 % what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geokv.measure.gaps.numbers import share_of, spread
from geokv.measure.gaps.served import CellView, Served
from geokv.measure.percentile import percentile
from geokv.measure.spans import SPAN_NAMES
from geokv.measure.statistics.carried import least_for_number
from geokv.units import NS_PER_MS

WORST = 0.01


def rows(view: CellView) -> list[dict[str, Any]]:
    """One row per group of requests with a first token, and how many had none."""
    return [
        {
            **view.place,
            "group": group,
            "without_first_token": len(asked) - len(timed),
            **_row(timed),
        }
        for group, asked in view.groups.items()
        if (timed := [one for one in asked if one.timed])
    ]


def _row(timed: Sequence[Served]) -> dict[str, Any]:
    ordered = sorted(timed, key=lambda one: (one.ttft_ns or 0, one.request_id))
    return {
        "ttft_ms": spread([one.ttft_ns or 0 for one in ordered], NS_PER_MS),
        "p50": _at(ordered, 0.5),
        "slowest": _slowest(ordered),
        "worst": _worst(ordered),
    }


def _at(ordered: Sequence[Served], share: float) -> dict[str, Any]:
    """The request that is the percentile, with its own parts: they add up to its TTFT."""
    value = percentile([one.ttft_ns or 0 for one in ordered], share)
    one = next(one for one in ordered if one.ttft_ns == value)
    return {"request_id": one.request_id, "ttft_ms": _ms(value), "spans_ms": _spans([one])}


def _slowest(ordered: Sequence[Served]) -> dict[str, Any]:
    """What the slowest request has more of than the others have on average."""
    last, others = ordered[-1], ordered[:-1]
    return {
        "request_id": last.request_id,
        "ttft_ms": _ms(last.ttft_ns or 0),
        "spans_ms": _spans([last]),
        **_excess([last], others),
    }


def _worst(ordered: Sequence[Served]) -> dict[str, Any]:
    """The worst 1 % beside all others; refused where that is less than one request."""
    n, least = len(ordered), least_for_number(1 - WORST)
    if n < least:
        return {"n": 0, "too_small": f"n too small: the worst 1 % needs {least}, n = {n}"}
    count = n // least
    worst, others = ordered[-count:], ordered[:-count]
    return {
        "n": count,
        "from_ms": _ms(worst[0].ttft_ns or 0),
        "spans_ms": _spans(worst),
        **_excess(worst, others),
    }


def _excess(worst: Sequence[Served], others: Sequence[Served]) -> dict[str, Any]:
    """Mean of each part over ``worst`` less its mean over ``others``; shares add up to 1."""
    if not others:
        return {"excess_ms": None, "excess_share": None, "dominates": None}
    more = {name: _mean(worst, name) - _mean(others, name) for name in SPAN_NAMES}
    whole = sum(more.values())
    return {
        "excess_ms": {name: _ms(value) for name, value in more.items()},
        "excess_share": {name: share_of(value, whole) for name, value in more.items()},
        "dominates": max(more, key=lambda name: more[name]) if whole > 0 else None,
    }


def _mean(rows: Sequence[Served], name: str) -> float:
    return sum(one.span(name) for one in rows) / len(rows)


def _spans(rows: Sequence[Served]) -> dict[str, float]:
    return {name: _ms(_mean(rows, name)) for name in SPAN_NAMES}


def _ms(value_ns: float) -> float:
    return round(value_ns / NS_PER_MS, 4)
