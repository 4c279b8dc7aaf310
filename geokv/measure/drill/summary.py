"""``summary.json`` of a drill, as one plain mapping; numbers are rounded here and only here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geokv.errors import RunError
from geokv.measure.checker.finding import Finding
from geokv.measure.checker.history import Event, load_histories
from geokv.measure.drill.by_hand import in_summary
from geokv.measure.drill.cell import DrillCell, reduce_drill_cell
from geokv.measure.drill.compared import During, Kind
from geokv.measure.drill.recovery import Recovery, Span
from geokv.measure.drill.stop import Stop, stops
from geokv.measure.drill.verdict import decide_drill, word_of
from geokv.measure.energy.drill import drill_energy
from geokv.measure.gaps import drill_views, gaps
from geokv.measure.percentile import percentile
from geokv.measure.records import Manifest
from geokv.measure.reduced import load_setup
from geokv.measure.rounded import to_ms
from geokv.measure.statistics.carried import tail
from geokv.measure.statistics.shown import declared
from geokv.measure.statistics.shown import notes as statistics_notes
from geokv.scenario import Scenario
from geokv.scenario.workload import OpenLoop, Stream, Trace
from geokv.units import NS_PER_S

_SHOWN = 8
"""Longer lists in an excerpt, such as all keys of a site, are cut to so many."""
_SHOWN_EVENTS = 40
"""So many events of an excerpt: a law that needs hundreds of samples is not read line by line."""


def summarise_drill(run_dir: Path) -> dict[str, Any]:
    """Judge the history of a drill's run folder.

    Raises:
        RunError: no history, a broken one, or one of another scenario.
        ConfigError: ``scenario.yaml`` is not a resolved scenario.
    """
    scenario, manifest, whole = load_setup(run_dir)
    histories = {history.cell: history for history in load_histories(run_dir)}
    cells = [reduce_drill_cell(cell, histories.get(cell.index)) for cell in scenario.cells()]
    verdict, judged = decide_drill(cells)
    void = {cell.cell.index for cell in cells if not cell.recorded or cell.link_problems}
    return {
        "kind": "drill",
        "verdict": verdict.word,
        "exit_code": verdict.exit_code,
        "reasons": verdict.reasons,
        "scenario": {
            "name": scenario.name,
            "title": scenario.title,
            "question": scenario.question,
            "hash": scenario.hash,
        },
        "ran": _ran(scenario, manifest),
        "expectations": [{"name": r.name, "ok": r.ok, "said": r.said} for r in judged],
        "warnings": _warnings(cells),
        "notes": [*_by_hand_notes(cells), *_notes(scenario, manifest)],
        "by_hand": in_summary([cell.commands for cell in cells]),
        "statistics": declared(scenario, manifest.clock),
        "control": scenario.control.model_dump(mode="json") if scenario.control else None,
        "cells": [_cell(cell) for cell in cells],
        "gaps": gaps(drill_views(scenario.cells(), histories, void), manifest.kv_bytes_per_token),
        "stops": [_stop(one) for one in stops(cells)],
        "figures": [figure.model_dump(mode="json") for figure in scenario.figures],
        "energy": drill_energy(scenario, manifest, cells),
        "provenance": whole,
    }


def _ran(scenario: Scenario, manifest: Manifest) -> dict[str, Any]:
    workload = scenario.workload
    if not isinstance(workload, OpenLoop):
        raise RunError(f"{scenario.name} is not a drill", "use geokv table RUN")
    return {
        "model": manifest.model,
        "stands_for": manifest.stands_for,
        "compute": scenario.deployment.compute,
        "byte_scale": manifest.byte_scale,
        "clock": manifest.clock,
        "kernel": manifest.kernel,
        "seed": manifest.seed,
        "seeds": scenario.seed_list,
        "tenants": workload.tenants,
        "output_tokens": workload.output_tokens,
        "requests": workload.requests,
        "chunk_tokens": scenario.deployment.chunk_tokens,
        "swept": [path for axis in scenario.sweep for path in axis.paths],
        **(_stream(workload) if isinstance(workload, Stream) else _trace(workload)),
    }


def _stream(stream: Stream) -> dict[str, Any]:
    return {
        "prefixes": stream.prefixes,
        "prefix_tokens": stream.prefix_tokens,
        "question_tokens": stream.question_tokens,
        "rate_per_s": stream.rate,
        "askers": dict(stream.askers),
        "providers": list(stream.providers),
        "cold": stream.cold,
    }


def _trace(trace: Trace) -> dict[str, Any]:
    lasts_ns = trace.due_ns[-1]
    lengths = [trace.prompt_tokens(line) for line in trace.stream]
    return {
        "trace": trace.file.file,
        "prompt_tokens": percentile(lengths, 0.5),
        "rate_per_s": round((trace.requests - 1) * NS_PER_S / lasts_ns, 3) if lasts_ns else 0.0,
        "askers": dict.fromkeys(trace.asked, 1.0) | trace.askers,
        "providers": trace.prepared_at,
        "cold": "keep",
    }


def _warnings(cells: Sequence[DrillCell]) -> list[str]:
    warnings = []
    for cell in cells:
        if cell.is_control:
            continue
        for one, fate in cell.fates.by_request:
            if fate in ("failed", "refused") and one.answer is not None:
                why = one.answer.get("error")
                warnings.append(f"{cell.cell.label}: request {one.request_id} {fate}: {why}")
        for fault in cell.faults:
            if fault.by_hand and fault.took_ns is None:
                said = f"{fault.name}, made by hand, did nothing: {fault.problem}"
                warnings.append(f"{cell.cell.label}: {said}")
    return warnings


def _by_hand_notes(cells: Sequence[DrillCell]) -> list[str]:
    given = [command for cell in cells for command in cell.commands]
    if not given:
        return []
    return [
        f"commands were given while it ran ({', '.join(given)}): no command repeats this run; "
        "history.jsonl has all that happened"
    ]


def _notes(scenario: Scenario, manifest: Manifest) -> list[str]:
    notes = []
    if scenario.control is not None and scenario.control.sabotage:
        notes.append(
            f"the cell control ran with a planted weakness: {scenario.control.sabotage}; its "
            "numbers are of a product that is broken on purpose"
        )
    scale = scenario.deployment.byte_scale
    if scale > 1:
        notes.append(
            f"S = {scale}: link rates and wire bytes are divided by {scale}, times are not; TCP "
            "windows in packets, slow-start rounds and per-packet costs are the slower link's"
        )
    notes += statistics_notes(scenario, manifest.clock)
    notes.append(
        "times of a fault are those of its evidence, seen from outside; a checker sees what the "
        "history holds (docs/measures.md)"
    )
    return notes


def _cell(cell: DrillCell) -> dict[str, Any]:
    rows = [one for one, _ in cell.fates.by_request]
    answered = [one for one in rows if one.ok]
    times = [one.ttft_ns for one in answered if one.ttft_ns is not None]
    hits = sum(one.cached_tokens > 0 for one in answered)
    start_ns = min((one.sent_ns for one in rows), default=0)
    return {
        "cell": cell.cell.index,
        "label": cell.cell.label,
        "settings": cell.cell.settings,
        "km": round(cell.cell.km, 3),
        "out_of_range": cell.cell.out_of_range,
        "control": cell.is_control,
        "verdict": word_of(cell),
        "recorded": cell.recorded,
        "valid": cell.recorded and not cell.link_problems,
        "problems": cell.link_problems,
        "requests": len(rows),
        "answered": len(answered),
        "ttft_p50_ms": to_ms(percentile(times, 0.5) if times else None),
        "ttft_p99_ms": to_ms(tail(times, 0.99)),
        "ttft_max_ms": to_ms(max(times, default=None)),
        "hit_rate": round(hits / len(answered), 4) if answered else None,
        "bytes": sum(int(one.answers[0].get("wire_bytes") or 0) for one in answered),
        "fates": {"requests": cell.fates.requests, "fetches": cell.fates.fetches},
        "misses": cell.misses,
        "kinds": _kinds(cell.kinds, cell.cell.scenario.deployment.byte_scale),
        "faults": _faults(cell, start_ns),
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


def _kinds(kinds: dict[str, Kind], scale: int) -> dict[str, Any]:
    return {
        name: {
            "asked": kind.asked,
            "answered": kind.answered,
            "remote": kind.remote,
            "ttft_p50_ms": to_ms(kind.p50_ns),
            "ttft_p99_ms": to_ms(kind.p99_ns),
            "ttft_max_ms": to_ms(kind.max_ns),
            "goodput_gbps": None
            if kind.goodput_bps is None
            else round(kind.goodput_bps * scale / 1e9, 4),
        }
        for name, kind in kinds.items()
    }


def _during(one: During | None, scale: int) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"kinds": _kinds(one.kinds, scale), "first_remote_ms": to_ms(one.first_remote_ns)}


def _stop(one: Stop) -> dict[str, Any]:
    return {
        "settings": one.settings,
        "cells": list(one.cells),
        "loads": list(one.loads),
        "ours": one.ours,
        "median": _share(one.median),
        "p99": _share(one.p99),
        "p99_carried": one.p99_carried,
        "slowest": _share(one.slowest),
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
