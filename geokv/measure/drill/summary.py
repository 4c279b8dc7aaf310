"""``summary.json`` of a drill, as one plain mapping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geokv.errors import RunError
from geokv.measure.checker.history import load_histories
from geokv.measure.drill.by_hand import in_summary
from geokv.measure.drill.cell import DrillCell, reduce_drill_cell
from geokv.measure.drill.shown import shown_cell, shown_stop
from geokv.measure.drill.stop import stops
from geokv.measure.drill.verdict import decide_drill
from geokv.measure.energy.drill import drill_energy
from geokv.measure.gaps import drill_views, gaps
from geokv.measure.percentile import percentile
from geokv.measure.records import Manifest, load_waits
from geokv.measure.reduced import load_setup
from geokv.measure.statistics.shown import declared, statistics
from geokv.measure.statistics.shown import notes as statistics_notes
from geokv.scenario import Scenario
from geokv.scenario.workload import OpenLoop, Stream, Trace
from geokv.units import NS_PER_S


def summarise_drill(run_dir: Path) -> dict[str, Any]:
    """Judge the history of a drill's run folder, and of one in real time whether the machine
    kept up.

    Raises:
        RunError: no history, a broken one, or one of another scenario.
        ConfigError: ``scenario.yaml`` is not a resolved scenario.
    """
    scenario, manifest, whole = load_setup(run_dir)
    histories = {history.cell: history for history in load_histories(run_dir)}
    waits = load_waits(run_dir)
    cells = [
        reduce_drill_cell(cell, histories.get(cell.index), waits.get(cell.index))
        for cell in scenario.cells()
    ]
    verdict, judged = decide_drill(cells)
    void = {cell.cell.index for cell in cells if not cell.valid}
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
        "statistics": _statistics(scenario, manifest.clock, cells),
        "control": scenario.control.model_dump(mode="json") if scenario.control else None,
        "cells": [shown_cell(cell) for cell in cells],
        "gaps": gaps(drill_views(scenario.cells(), histories, void), manifest.kv_bytes_per_token),
        "stops": [shown_stop(one) for one in stops(cells)],
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


def _statistics(scenario: Scenario, clock: str, cells: Sequence[DrillCell]) -> dict[str, Any]:
    """Nothing of differences where there is one cell: its control differs on purpose."""
    swept = [cell for cell in cells if not cell.is_control]
    return statistics(scenario, clock, swept) if len(swept) > 1 else declared(scenario, clock)


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
