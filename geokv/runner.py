"""One run on the host's side: folder, VMs, records, verdict."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from geokv import __version__
from geokv.coordinator.prompts import make_prompts
from geokv.engine.profile import GpuProfile, parts_of
from geokv.errors import GeokvError, RunError
from geokv.live.events import describe_run
from geokv.live.host import telling
from geokv.preflight import preflight, provenance_of_code
from geokv.report.disk import explained
from geokv.report.outputs import FORMATS, Format
from geokv.report.run_folder import make_run_folder, write_all, write_manifest
from geokv.scenario import Scenario
from geokv.scenario.deployment import Deployment
from geokv.vm import Job, Place, choose_place
from geokv.vm.pace import read_pace
from geokv.vm.steps import error_of, step_of
from geokv.vm.supervise import run_jobs
from geokv.vm.waits import Waits

_PACKAGES = ("torch", "numpy", "fastapi", "uvicorn", "httpx", "pyroute2", "scapy", "mininet")
_VERDICT = ("verdict", "exit_code", "reasons")

Progress = Callable[[dict[str, Any]], None]


def run_scenario(
    scenario: Scenario,
    out: Path | None,
    on_progress: Progress,
    root: Path = Path("results"),
    *,
    pace: str | float | None = None,
    live: bool | None = None,
    formats: Collection[Format] = FORMATS,
    give_up: Callable[[], bool] = lambda: False,
) -> tuple[Path, dict[str, Any]]:
    """Run every cell and reduce the records.

    Args:
        out: the run folder to use; None makes ``results/<scenario>/<stamp>-<hash>``.
        on_progress: takes each step of each part: ``{"event": …, "part": n, …}``; the same
            steps are in ``events.jsonl`` (docs/live.md).
        pace: virtual seconds per real second, at most (``1x``, or a number); None is as fast as
            it goes.
        live: tell samples, and take commands; in one VM, whatever ``vm.jobs`` says. None is
            where there is a pace.
        formats: which outputs are written beside the summary, the history and the trace.
        give_up: asked all the time whether to end the run where it stands.

    Returns:
        The run folder and its summary.

    Raises:
        ConfigError: the scenario or ``out`` cannot be used; nothing is made.
        GeokvError: the place, the folder, a VM, the lab or a site failed; the run folder
            keeps ``log.txt``.
        RunEnded: because of ``give_up``.
    """
    factor = read_pace(pace, scenario.clock)
    live = factor is not None if live is None else live
    place = choose_place(scenario.clock)
    profile = preflight(scenario)
    parts = min(scenario.vm.jobs, len(scenario.cells())) if place.kernel and not live else 1
    # What can be refused is, before there is a folder.
    manifest = _manifest(scenario, profile, place, parts)
    run_dir = make_run_folder(scenario, root, exact=out)
    write_manifest(run_dir, manifest | _watched(factor, live))
    try:
        with telling(run_dir, on_progress, live) as tell:
            tell(describe_run(scenario, place.kernel_name, parts, factor, live))
            started = {"path": str(run_dir), "parts": parts, "kernel": place.kernel_name}
            tell({"event": "folder", **started})
            _run_parts(place, scenario, run_dir, parts, tell, factor, live, give_up)
            if not scenario.is_drill:
                _join_parts(run_dir, parts)
            tell({"event": "report"})
            summary = write_all(run_dir, formats)
            tell({"event": "verdict", **{key: summary[key] for key in _VERDICT}})
    except OSError as error:
        raise explained(error, Path(error.filename or run_dir)) from None
    return run_dir, summary


def _run_parts(
    place: Place,
    scenario: Scenario,
    run_dir: Path,
    parts: int,
    on_progress: Progress,
    pace: float | None,
    live: bool,
    give_up: Callable[[], bool],
) -> None:
    job = Job(
        argv=(),
        memory_bytes=scenario.vm.memory,
        watchdog_s=_watchdog_s(scenario, pace),
        pace=pace,
    )
    jobs = [
        replace(
            job,
            argv=(
                "python",
                "-m",
                "geokv.coordinator.run",
                str(run_dir.resolve()),
                str(part),
                str(parts),
                *(["live"] if live else []),
            ),
        )
        for part in range(parts)
    ]
    errors: list[GeokvError] = []
    waits = None
    if place.clock == "wall":
        waits = Waits(run_dir / "records" / "waits.jsonl")
    with (run_dir / "log.txt").open("w", encoding="utf-8") as log:

        def on_line(part: int, line: str) -> None:
            log.write(f"[{part}] {line}\n")
            log.flush()
            step = step_of(line)
            if step is None:
                return
            if error := error_of(step, RunError):
                errors.append(error)
            if waits is not None:
                waits.take(part, step)
            on_progress({"part": part, **step})

        started = (lambda index, process: None) if waits is None else waits.started
        outcomes = run_jobs(place, jobs, on_line, started, give_up)
        for part, outcome in enumerate(outcomes):
            for line in outcome.errors.splitlines():
                log.write(f"[{part}] ! {line}\n")
    if errors:
        raise errors[0]
    for part, outcome in enumerate(outcomes):
        if outcome.status:
            tail = "\n".join(f"  | {line}" for line in outcome.errors.splitlines()[-12:])
            raise RunError(
                f"part {part} of the run ended with status {outcome.status}\n{tail}",
                f"the whole output is in {run_dir}/log.txt",
            )


def _watched(pace: float | None, live: bool) -> dict[str, Any]:
    """Of a run that somebody looks at; others keep the manifest they always had."""
    return ({"pace": pace} if pace is not None else {}) | ({"live": True} if live else {})


def _watchdog_s(scenario: Scenario, pace: float | None) -> float:
    """Longer where time itself is slow: a run is silent for as long as it waits."""
    if pace is None:
        return scenario.vm.watchdog
    workload = scenario.workload
    waits_s = max(workload.deadline, getattr(workload, "quiesce", 0.0), workload.idle)
    return scenario.vm.watchdog * max(1.0, 1 / pace) + 2 * waits_s / pace


def _join_parts(run_dir: Path, parts: int) -> None:
    """One file per kind of record, in the order of the cells."""
    records = run_dir / "records"
    for name in ("requests", "cells"):
        rows: list[tuple[int, str]] = []
        for part in range(parts):
            path = records / f"{name}-{part}.jsonl"
            for line in path.read_text(encoding="utf-8").splitlines():
                rows.append((json.loads(line)["cell"], line))
            path.unlink()
        rows.sort(key=lambda row: row[0])
        text = "".join(line + "\n" for _, line in rows)
        (records / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _what_ran(deployment: Deployment) -> str:
    return "synthetic content" if deployment.content == "synthetic" else deployment.model


def _formula(stands_for: str) -> dict[str, Any] | None:
    """What Mooncake's B/G rule asks of model and device (``measure/break_even.py``)."""
    parts = parts_of(stands_for)
    if parts is None:
        return None
    shape, ways, device = parts
    return {
        "width": shape.hidden,
        "gqa": shape.heads / shape.kv_heads,
        "matrix_operations": shape.matrix_operations,
        "flops": ways * device.peak_flops,
    }


def _manifest(scenario: Scenario, profile: GpuProfile, place: Place, parts: int) -> dict[str, Any]:
    deployment, prompts = scenario.deployment, make_prompts(scenario)
    code = provenance_of_code(scenario)
    return {
        "clock": place.clock,
        "kernel": place.kernel_name,
        "parts": parts,
        "byte_scale": deployment.byte_scale,
        "seed": scenario.seed,
        **({"seeds": scenario.seed_list} if scenario.seeds is not None else {}),
        "model": _what_ran(deployment),
        "stands_for": deployment.stands_for,
        "compute": deployment.compute,
        "prompt": {
            "prefix_tokens": len(prompts.prefix),
            "question_tokens": prompts.longest - len(prompts.prefix),
        },
        "scenario_hash": scenario.hash,
        # Of a drill's last cell, whose sites are broken on purpose.
        **({"sabotage": scenario.control.sabotage} if scenario.control is not None else {}),
        **({"code": code} if code else {}),
        "profile": profile.model_dump(mode="json"),
        "formula": _formula(deployment.stands_for),
        "versions": {
            "geokv": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
    }
