"""``trace.jsonl``: every request of a run in Mooncake's line format, to be replayed."""

from __future__ import annotations

import json
from pathlib import Path

from geokv.measure.checker.history import load_histories
from geokv.measure.gaps import CellView, drill_views, measured_views
from geokv.measure.gaps.trace import lines
from geokv.measure.records import load_cells, load_requests
from geokv.report.disk import saving
from geokv.scenario import read_back


def write_trace(run_dir: Path) -> None:
    """Write it from the records of a finished run; of a drill from its merged history.

    Raises:
        RunError: broken or missing records, or a full disk.
        ConfigError: the folder cannot be written to.
    """
    target = run_dir / "trace.jsonl"
    views = _views(run_dir)
    with saving(target), target.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines(views))


def _views(run_dir: Path) -> list[CellView]:
    scenario = read_back(run_dir / "scenario.yaml")
    if scenario.is_drill:
        histories = {history.cell: history for history in load_histories(run_dir)}
        return drill_views(scenario.cells(), histories)
    return measured_views(run_dir, scenario.cells(), load_requests(run_dir), load_cells(run_dir))
