"""The times to first token of a finished run, of whichever kind, by what can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geokv.errors import RunError
from geokv.measure.checker.history import load_histories
from geokv.measure.drill.cell import reduce_drill_cell
from geokv.measure.drill.compared import ANSWERED
from geokv.measure.records import Manifest, load_waits
from geokv.measure.reduced import load_setup, reduce_run
from geokv.scenario import Scenario
from geokv.scenario.seeds import AXIS
from geokv.scenario.sweep import Cell, Value, label

Key = tuple[tuple[tuple[str, Value], ...], str]
"""Settings of a cell but for the seed, and an arm."""


@dataclass
class Sample:
    """One arm at one point of a sweep.

    Attributes:
        by_seed: seed → request → TTFT in ns, of the measured requests that were answered. A
            request of the same name asks the same wherever ``asked`` is the same.
        asked: seed → what decides what is asked: workload, model and, where each cell has questions
            of its own, the cell's number.
        void: why no number of it counts; empty when it does.
    """

    label: str
    arm: str
    by_seed: dict[int, dict[str, int]]
    asked: dict[int, tuple[Any, ...]]
    void: str = ""


@dataclass(frozen=True)
class SampledRun:
    """One run that is compared: what it was, and its times by cell and arm."""

    folder: Path
    scenario: Scenario
    manifest: Manifest
    provenance: Mapping[str, Any]
    samples: dict[Key, Sample]

    def has(self, key: Key) -> bool:
        """Whether it had such a cell and arm, with an answer or without."""
        if self.scenario.is_drill:
            # Its samples are of what was answered.
            return key[0] in {_point(cell) for cell in self.scenario.cells()}
        return key in self.samples


def sampled(run_dir: Path) -> SampledRun:
    """Read a run folder.

    Raises:
        RunError: not a finished run, or broken records.
        ConfigError: its ``scenario.yaml`` is none.
    """
    if not run_dir.is_dir():
        raise RunError(
            f"{run_dir}: no such run folder",
            "give folders of finished runs, as results/distance_ttft/<stamp>-<hash>",
        )
    scenario, manifest, provenance = load_setup(run_dir)
    samples = _of_drill(run_dir, scenario) if scenario.is_drill else _of_run(run_dir)
    return SampledRun(run_dir, scenario, manifest, provenance, samples)


def _of_run(run_dir: Path) -> dict[Key, Sample]:
    found: dict[Key, Sample] = {}
    run = reduce_run(run_dir)
    for result in run.results:
        rows = run.by_cell[result.cell.index]
        for arm in result.arms:
            times = {
                str(row.repeat): row.ttft_ns
                for row in rows
                if row.arm == arm and row.timed and not row.warmup and row.ttft_ns is not None
            }
            why = "" if result.recorded else "not recorded"
            _add(found, result.cell, arm, times, "; ".join(result.void_because[:1]) or why)
    return found


def _of_drill(run_dir: Path, scenario: Scenario) -> dict[Key, Sample]:
    histories = {history.cell: history for history in load_histories(run_dir)}
    waits = load_waits(run_dir)
    found: dict[Key, Sample] = {}
    for cell in scenario.cells():
        if cell.control is not None:
            continue
        result = reduce_drill_cell(cell, histories.get(cell.index), waits.get(cell.index))
        times: dict[str, dict[str, int]] = defaultdict(dict)
        for one, _ in result.fates.by_request:
            if one.ok and one.ttft_ns is not None:
                times[str(one.request.get("probe", ANSWERED))][one.request_id] = one.ttft_ns
        why = "" if result.recorded else "not recorded"
        for arm in sorted(times):
            _add(found, cell, arm, times[arm], "; ".join(result.void_because[:1]) or why)
    return found


def _point(cell: Cell) -> tuple[tuple[str, Value], ...]:
    """Settings of a cell but for the seed."""
    return tuple(sorted((name, value) for name, value in cell.settings.items() if name != AXIS))


def _add(found: dict[Key, Sample], cell: Cell, arm: str, times: dict[str, int], void: str) -> None:
    key: Key = (_point(cell), arm)
    said = label({name: cell.settings[name] for name in cell.settings if name != AXIS})
    sample = found.setdefault(key, Sample(said, arm.replace("-", " "), {}, {}))
    scenario = cell.scenario
    # Requests of a drill are the same in all of its cells.
    number = None if scenario.is_drill else cell.index
    sample.asked[scenario.seed] = (scenario.workload, scenario.deployment.model, number)
    sample.by_seed[cell.scenario.seed] = times
    sample.void = sample.void or void
