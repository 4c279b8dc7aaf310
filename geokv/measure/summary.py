"""``summary.json``: everything a run says, as one plain mapping.

All arithmetic before this file is exact or unrounded; here, and only here, numbers
are rounded: times to ns/1000 in ms (3 decimals), shares and ratios to 4 decimals,
percent, points and joules to 3. Equal runs therefore give equal text.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from geokv.errors import RunError
from geokv.measure import machine
from geokv.measure.arm import ArmResult
from geokv.measure.cell import CellResult
from geokv.measure.controls import ControlResult
from geokv.measure.crossover import Crossover, crossovers, formula_bps
from geokv.measure.energy import Joules
from geokv.measure.energy.promises import judge_energy
from geokv.measure.energy.summary import energy_summary
from geokv.measure.expect import judge
from geokv.measure.fetching import Fetching
from geokv.measure.gaps import gaps, measured_views
from geokv.measure.hits import Hits
from geokv.measure.knee import Knee, knees
from geokv.measure.records import (
    Formula,
    Manifest,
    Request,
)
from geokv.measure.reduced import reduce_run
from geokv.measure.rounded import rounded, to_gbps, to_ms, to_percent
from geokv.measure.soundness import examine
from geokv.measure.statistics.replicates import Point
from geokv.measure.statistics.shown import notes as statistics_notes
from geokv.measure.statistics.shown import shown_ttft, statistics
from geokv.measure.texts import shown_answers
from geokv.measure.verdict import decide
from geokv.scenario import Scenario
from geokv.scenario.workload import Document, Trace, WorkingSet


def summarise(run_dir: Path) -> dict[str, Any]:
    """Read the raw records of a run folder and reduce them.

    Raises:
        RunError: records that are missing, broken or of another scenario.
        ConfigError: ``scenario.yaml`` is not a resolved scenario.
    """
    run = reduce_run(run_dir)
    scenario, manifest, results = run.scenario, run.manifest, run.results
    whole = [point.result for point in run.points]
    void = {result.cell.index for result in results if not result.valid}
    views = measured_views(run_dir, scenario.cells(), run.requests, run.records, void)
    judged = [
        *judge(scenario.expect, results),
        *judge_energy(scenario.expect.energy, results, run.by_cell, run.numbers),
        *examine(results),
    ]
    verdict = decide(judged, results)
    return {
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
        "warnings": _warnings(scenario, results, run.requests),
        "notes": _notes(scenario, manifest),
        "statistics": statistics(scenario, manifest.clock, run.points),
        "answers": shown_answers(scenario, results, run.by_cell),
        "cells": [_point(point) for point in run.points],
        "crossovers": [_crossover(one, manifest.formula) for one in crossovers(whole)],
        "knees": [_knee(one) for one in knees(whole)],
        "figures": [figure.model_dump(mode="json") for figure in scenario.figures],
        "gaps": gaps(views, manifest.kv_bytes_per_token),
        "energy": energy_summary(run_dir, scenario, manifest, whole, run.by_cell, run.by_point),
        "provenance": run.provenance,
    }


def _ran(scenario: Scenario, manifest: Manifest) -> dict[str, Any]:
    workload = scenario.workload
    lengths = manifest.prompt or workload
    if isinstance(lengths, Document | Trace):
        raise RunError("manifest.json: has no prompt lengths, another version of geokv wrote it")
    return {
        "document": workload.text.file if isinstance(workload, Document) else None,
        "model": manifest.model,
        "stands_for": manifest.stands_for,
        "compute": scenario.deployment.compute,
        "byte_scale": manifest.byte_scale,
        "clock": manifest.clock,
        "kernel": manifest.kernel,
        "seed": manifest.seed,
        "seeds": scenario.seed_list,
        "prefixes": workload.prefixes if isinstance(workload, WorkingSet) else 1,
        "prefix_tokens": lengths.prefix_tokens,
        "question_tokens": lengths.question_tokens,
        "output_tokens": workload.output_tokens,
        "requests": workload.requests,
        "warmup": workload.warmup,
        "chunk_tokens": scenario.deployment.at(workload.asker).chunk_tokens,
        "streams": scenario.cache.substrate.streams,
        "in_flight": scenario.cache.substrate.in_flight,
        "arms": list(scenario.arms),
        "swept": [path for axis in scenario.sweep for path in axis.paths],
    }


def _warnings(scenario: Scenario, results: list[CellResult], requests: list[Request]) -> list[str]:
    warnings = []
    keeps = isinstance(scenario.workload, WorkingSet)
    for result in results:
        label = result.cell.label
        warnings += [f"{label}: {said}" for said in result.void_because]
        remote = result.arms.get("remote-hit")
        if remote and remote.fetched < remote.n and not keeps:
            causes = ", ".join(f"{cause} {count}" for cause, count in remote.misses.items())
            lack = remote.n - remote.fetched
            warnings.append(
                f"{label}: {lack} of {remote.n} remote-hit requests fetched nothing"
                + (f" ({causes})" if causes else "")
            )
        for arm in result.arms.values():
            warnings += [f"{label}: {said}" for said in (*arm.failed, *arm.spans_off)]
            warnings += [f"{label}: {said}" for said in arm.misnamed]
        warnings += [f"{label}: wrong: {said}" for said in result.answers.wrong]
    warnings += [
        f"cell {row.cell}: preparing failed: {row.error}"
        for row in requests
        if row.arm == "prepare" and row.status != "ok"
    ]
    return warnings


def _notes(scenario: Scenario, manifest: Manifest) -> list[str]:
    notes = []
    scale = scenario.deployment.byte_scale
    if scale > 1:
        notes.append(
            f"S = {scale}: link rates and wire bytes are divided by {scale}, times are not; TCP "
            "windows in packets, slow-start rounds and per-packet costs are the slower link's"
        )
    deployment = scenario.deployment
    for site in scenario.topology.sites:
        own = deployment.laid_out(site)
        differs = [f"{name} {own[name]}" for name in own if own[name] != getattr(deployment, name)]
        if differs:
            notes.append(f"site {site} has {', '.join(differs)}")
    notes += statistics_notes(scenario, manifest.clock)
    notes.append(
        "energy is a proxy: published watts times measured phases; metered is only what says so"
    )
    return notes


def _point(point: Point) -> dict[str, Any]:
    """A point of the sweep; with several seeds also what each came to."""
    if len(point.by_seed) == 1:
        return _cell(point.result)
    return {**_cell(point.result), "by_seed": [_of_seed(one) for one in point.by_seed]}


def _of_seed(result: CellResult) -> dict[str, Any]:
    return {
        "seed": result.cell.scenario.seed,
        "cell": result.cell.index,
        "valid": result.valid,
        "gain": rounded(result.gain, 4),
        "ttft_p50_ms": {
            name.replace("-", "_"): to_ms(arm.p50_ns) for name, arm in result.arms.items()
        },
    }


def _cell(result: CellResult) -> dict[str, Any]:
    diff = result.answers.logits_diff
    return {
        "cell": result.cell.index,
        "label": result.cell.label,
        "settings": result.cell.settings,
        "km": rounded(result.cell.km, 3),
        "rtt_asked_ms": to_ms(result.rtt_asked_ns),
        "rtt_measured_ms": to_ms(result.rtt_measured_ns),
        "goodput_ratio": rounded(result.goodput_ratio, 4),
        "valid": result.valid,
        "problems": result.void_because,
        **machine.shown(result.timers, result.wait),
        "out_of_range": result.cell.out_of_range,
        "gain": rounded(result.gain, 4),
        "gain_change_percent": rounded(result.gain_change_percent, 3),
        "gain_change_points": rounded(result.gain_change_points, 3),
        "compared": result.answers.compared,
        "wrong": len(result.answers.wrong),
        "controls": {control.arm: _control(control, result) for control in result.controls},
        # Infinite (different lengths) has no JSON; the judged line says so in words.
        "first_logits_diff": float(f"{diff:.3g}")
        if diff is not None and math.isfinite(diff)
        else None,
        "arms": {
            name.replace("-", "_"): _arm(name, arm, result) for name, arm in result.arms.items()
        },
    }


def _control(control: ControlResult, result: CellResult) -> dict[str, Any]:
    finite = [diff for diff in control.diffs if math.isfinite(diff)]
    return {
        "compared": control.compared,
        "words_differ": control.words_differ,
        "smallest_logits_diff": float(f"{min(finite):.3g}") if finite else None,
        "planted": result.planted.get(control.arm),
    }


def _arm(name: str, arm: ArmResult, result: CellResult) -> dict[str, Any]:
    data: dict[str, Any] = {
        "n": arm.n,
        "failed": len(arm.failed),
        **shown_ttft(arm.ttft),
        "spans_ms": {span: to_ms(value) for span, value in arm.spans_ns.items()},
        "bytes": arm.wire_bytes,
        "bytes_stands_for": arm.wire_bytes * result.cell.scenario.deployment.byte_scale,
        "bytes_total": arm.wire_bytes_total,
        "sources": arm.sources,
        "hits": _hits(result.hits[name]),
        "fetching": _fetching(result.fetching.get(name)),
        "misses": arm.misses,
        "energy_j": rounded(arm.joules.total_j, 3) if arm.joules else None,
        "energy_parts_j": _parts(arm.joules),
    }
    if name == "remote-hit":
        data["fetched"] = arm.fetched
        data["bound_ms"] = to_ms(result.bound_ns)
        data["ratio_to_bound"] = rounded(result.ratio_to_bound, 4)
    return data


def _fetching(one: Fetching | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "requests": one.requests,
        "time_ms": to_ms(one.time_ns),
        "chunks": one.chunks,
        "goodput_gbps": to_gbps(one.goodput_bps),
        "round_trips": rounded(one.round_trips, 3),
        "predicted_ms": to_ms(one.predicted_ns),
        "off_percent": to_percent(one.off),
    }


def _hits(hits: Hits) -> dict[str, Any]:
    return {
        tier: {
            "share": rounded(hits.share(tier), 4),
            "requests": hits.requests[tier],
            "ttft_p50_ms": to_ms(hits.ttft_ns.get(tier)),
        }
        for tier in hits.tokens
    }


def _crossover(one: Crossover, formula: Formula | None) -> dict[str, Any]:
    return {
        "settings": one.settings,
        "cells": list(one.cells),
        "measured_gbps": to_gbps(one.measured_bps),
        "predicted_gbps": to_gbps(one.predicted_bps),
        "off_percent": to_percent(one.off),
        "formula_gbps": to_gbps(formula_bps(one, formula)) if formula else None,
    }


def _knee(one: Knee) -> dict[str, Any]:
    return {
        "settings": one.settings,
        "measured_tokens": one.measured_tokens,
        "predicted_tokens": one.predicted_tokens,
        "paper_tokens": rounded(one.paper_tokens, 1),
    }


def _parts(joules: Joules | None) -> dict[str, float | None] | None:
    if joules is None:
        return None
    return {
        "gpu": rounded(joules.gpu_j, 3),
        "optics": rounded(joules.optics_j, 3),
        "transfer": rounded(joules.transfer_j, 3),
    }
