"""From the records of a run folder to exact numbers of every cell, not yet rounded or judged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geokv.errors import RunError
from geokv.measure.cell import CellResult, reduce_cell, with_changes
from geokv.measure.energy import Constants, constants
from geokv.measure.records import (
    CellRecord,
    Manifest,
    Request,
    load_cells,
    load_manifest,
    load_requests,
    load_waits,
)
from geokv.measure.statistics.replicates import Point, points
from geokv.scenario import Cell, Scenario, hash_as_written, read_back


@dataclass(frozen=True)
class ReducedRun:
    """A measurement run.

    Attributes:
        provenance: the whole manifest, also what is not judged by.
        by_cell: number of a cell → its requests, warm-ups and preparing ones too.
        results: a cell each, in order; with several seeds one of every point and seed.
        points: a point of the sweep each, of all its seeds.
    """

    scenario: Scenario
    manifest: Manifest
    provenance: dict[str, Any]
    requests: list[Request]
    records: list[CellRecord]
    by_cell: dict[int, list[Request]]
    numbers: Constants
    results: list[CellResult]
    points: list[Point]

    @property
    def by_point(self) -> dict[int, list[Request]]:
        """Number of a point's first cell → the requests of all its seeds."""
        return {
            point.cell.index: [row for one in point.by_seed for row in self.by_cell[one.cell.index]]
            for point in self.points
        }


def reduce_run(run_dir: Path) -> ReducedRun:
    """Read the raw records of a run folder and reduce them.

    Raises:
        RunError: records that are missing, broken or of another scenario.
        ConfigError: ``scenario.yaml`` is not a resolved scenario.
    """
    scenario, manifest, provenance = load_setup(run_dir)
    requests, records = load_requests(run_dir), load_cells(run_dir)
    numbers = constants(scenario.energy, manifest.profile)
    cells, waits = scenario.cells(), load_waits(run_dir)
    by_cell = _sorted_requests(requests, cells, scenario)
    by_index = _matched_records(records, cells)
    results = with_changes(
        [
            reduce_cell(
                cell,
                by_index.get(cell.index),
                by_cell[cell.index],
                numbers,
                waits.get(cell.index),
            )
            for cell in cells
        ]
    )
    return ReducedRun(
        scenario,
        manifest,
        provenance,
        requests,
        records,
        by_cell,
        numbers,
        results,
        points(results),
    )


def load_setup(run_dir: Path) -> tuple[Scenario, Manifest, dict[str, Any]]:
    """What was run: scenario, manifest, and the manifest whole.

    Raises:
        RunError: no manifest, or one of another scenario.
        ConfigError: ``scenario.yaml`` is not a resolved scenario.
    """
    path = run_dir / "scenario.yaml"
    scenario = read_back(path)
    manifest, whole = load_manifest(run_dir)
    ran = manifest.scenario_hash
    # The file is parsed once more only where this version knows keys that it does not have.
    if ran != scenario.hash and ran != hash_as_written(path):
        raise RunError(
            f"{run_dir}: scenario.yaml (hash {scenario.hash}) is not what ran ({ran})",
            "restore the file or run again; a finished run's settings are not to be edited",
        )
    return scenario, manifest, whole


def _sorted_requests(
    requests: list[Request], cells: list[Cell], scenario: Scenario
) -> dict[int, list[Request]]:
    by_cell: dict[int, list[Request]] = defaultdict(list)
    seen: set[tuple[int, str, bool, int]] = set()
    for row in requests:
        place = f"requests.jsonl: {row.request_id}"
        if not 0 <= row.cell < len(cells):
            raise RunError(f"{place}: cell {row.cell} is none of the scenario's {len(cells)}")
        by_cell[row.cell].append(row)
        if row.arm == "prepare":
            continue
        if row.arm not in scenario.arms:
            raise RunError(f"{place}: arm {row.arm} is not one of the scenario's")
        key = (row.cell, row.arm, row.warmup, row.repeat)
        if key in seen:
            raise RunError(f"{place}: {row.arm} repeat {row.repeat} is recorded twice")
        seen.add(key)
    return by_cell


def _matched_records(records: list[CellRecord], cells: list[Cell]) -> dict[int, CellRecord]:
    for record in records:
        known = 0 <= record.cell < len(cells)
        if not known or record.settings != cells[record.cell].settings:
            raise RunError(
                f"cells.jsonl: cell {record.cell} with {record.settings} is not the scenario's"
            )
    return {record.cell: record for record in records}
