"""The cells of a drill as ``summary.json`` has them; numbers are rounded here and only here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from geokv.measure import machine
from geokv.measure.checker.finding import Finding
from geokv.measure.checker.history import Event
from geokv.measure.drill.cell import DrillCell
from geokv.measure.drill.compared import During, Kind
from geokv.measure.drill.recovery import Recovery, Span
from geokv.measure.drill.sites import SiteTimes, Times
from geokv.measure.drill.stop import Stop
from geokv.measure.drill.verdict import word_of
from geokv.measure.rounded import to_gbps, to_ms
from geokv.measure.statistics.shown import shown_ttft
from geokv.measure.statistics.ttft import Ttft

_SHOWN = 8
"""Longer lists in an excerpt, such as all keys of a site, are cut to so many."""
_SHOWN_EVENTS = 40
"""So many events of an excerpt: a law that needs hundreds of samples is not read line by line."""


def shown_cell(cell: DrillCell) -> dict[str, Any]:
    """One of ``cells``."""
    rows = [one for one, _ in cell.fates.by_request]
    answered = [one for one in rows if one.ok]
    hits = sum(one.cached_tokens > 0 for one in answered)
    start_ns = min((one.sent_ns for one in rows), default=0)
    scale = cell.cell.scenario.deployment.byte_scale
    return {
        "cell": cell.cell.index,
        "label": cell.cell.label,
        "settings": cell.cell.settings,
        "km": round(cell.cell.km, 3),
        "out_of_range": cell.cell.out_of_range,
        "control": cell.is_control,
        "verdict": word_of(cell),
        "recorded": cell.recorded,
        "valid": cell.valid,
        "problems": cell.void_because,
        **machine.shown(cell.machine.timers, cell.machine.wait),
        "requests": len(rows),
        "answered": len(answered),
        **_ttft(cell.ttft),
        "hit_rate": round(hits / len(answered), 4) if answered else None,
        "bytes": sum(int(one.answers[0].get("wire_bytes") or 0) for one in answered),
        "fates": {"requests": cell.fates.requests, "fetches": cell.fates.fetches},
        "misses": cell.misses,
        "kinds": _kinds(cell.kinds, scale, _ttft),
        "faults": _faults(cell, start_ns),
        "sites": [_site(one) for one in cell.sites],
        "lines": [_line(line) for line in cell.lines],
    }


def _faults(cell: DrillCell, start_ns: int) -> list[dict[str, Any]]:
    """Times of evidence since the first request was sent."""
    recovered = {recovery.fault.name: recovery for recovery in cell.recoveries}
    scale = cell.cell.scenario.deployment.byte_scale
    return [
        {
            "name": fault.name,
            "kind": fault.kind,
            "target": fault.target,
            "by_hand": fault.by_hand,
            "took_effect_ms": to_ms(None if fault.took_ns is None else fault.took_ns - start_ns),
            "healed_ms": to_ms(None if fault.healed_ns is None else fault.healed_ns - start_ns),
            "evidence": fault.evidence,
            "problem": fault.problem,
            "recovery": _recovery(recovered.get(fault.name)),
            "during": _during(cell.outages.get(fault.name), scale),
        }
        for fault in cell.faults
    ]


def _kinds(
    kinds: dict[str, Kind], scale: int, times: Callable[[Ttft], dict[str, Any]]
) -> dict[str, Any]:
    return {
        name: {
            "asked": kind.asked,
            "answered": kind.answered,
            "remote": kind.remote,
            **times(kind.ttft),
            "goodput_gbps": to_gbps(None if kind.goodput_bps is None else kind.goodput_bps * scale),
        }
        for name, kind in kinds.items()
    }


def _during(one: During | None, scale: int) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "kinds": _kinds(one.kinds, scale, _percentiles),
        "first_remote_ms": to_ms(one.first_remote_ns),
    }


def _site(one: SiteTimes) -> dict[str, Any]:
    parts = {"before": one.before, "during": one.during, "after": one.after}
    return {"site": one.site, **{name: _times(part) for name, part in parts.items()}}


def _times(one: Times) -> dict[str, Any]:
    return {"asked": one.asked, **_percentiles(one)}


def _ttft(one: Ttft) -> dict[str, Any]:
    """With how sure it is, and of how many."""
    return {"n": len(one.samples_ns), **shown_ttft(one)}


def _percentiles(one: Times | Ttft) -> dict[str, Any]:
    """Without: of what one outage met, or one site saw."""
    return {
        "ttft_p50_ms": to_ms(one.p50_ns),
        "ttft_p99_ms": to_ms(one.p99_ns),
        "ttft_max_ms": to_ms(one.max_ns),
    }


def shown_stop(one: Stop) -> dict[str, Any]:
    """One of ``stops``: where fetching ceases to pay."""
    return {
        "settings": one.settings,
        "cells": list(one.cells),
        "loads": list(one.loads),
        "ours": one.ours,
        "median": _share(one.median),
        "p99": _share(one.p99),
        "p99_carried": one.p99_carried,
        "slowest": _share(one.slowest),
        "faster_again": list(one.faster_again),
        "formula": _share(one.formula),
    }


def _recovery(recovery: Recovery | None) -> dict[str, Any] | None:
    if recovery is None:
        return None
    spans = {name: _span(span) for name, span in recovery.spans().items()}
    return {**spans, "fetches_lost": recovery.fetches_lost}


def _span(span: Span) -> dict[str, Any]:
    return {"ms": to_ms(span.ns), "n": span.n, "said": span.said}


def _line(line: Finding) -> dict[str, Any]:
    return {
        "name": line.name,
        "inv": line.inv,
        "ok": line.ok,
        "said": line.said,
        "excerpt": _shown(line.excerpt),
    }


def _shown(excerpt: Sequence[Event]) -> list[Event]:
    """The events for people; a last one says how many are left out."""
    shown = [brief(event) for event in excerpt[:_SHOWN_EVENTS]]
    if left := excerpt[_SHOWN_EVENTS:]:
        shown.append({"t_ns": left[0]["t_ns"], "site": "", "op": f"… {len(left)} events more"})
    return shown


def brief(event: Event) -> Event:
    """An event for people: long lists and mappings are cut, and say so."""
    return {name: _brief(value) for name, value in event.items()}


def _brief(value: Any) -> Any:
    if isinstance(value, list) and len(value) > _SHOWN:
        return [*value[:_SHOWN], f"… {len(value) - _SHOWN} more"]
    if isinstance(value, dict) and len(value) > _SHOWN:
        kept = dict(list(value.items())[:_SHOWN])
        return {**kept, "…": f"{len(value) - _SHOWN} more"}
    return value


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
