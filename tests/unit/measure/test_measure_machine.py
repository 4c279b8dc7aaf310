"""A run in real time on a machine that did not keep up is void, and the counter is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from handwritten import SCENARIO, Run

from geokv.measure import summarise
from geokv.report.console import print_run, table_console

QUIET = {"timers": 400, "late": 20, "worst_ns": 1_400_000}


def written(
    folder: Path, timers: dict[str, int] | None, wait_ns: int | None, compute: str = "charged"
) -> dict[str, Any]:
    run = Run({**SCENARIO, "clock": "wall", "deployment": {"compute": compute}})
    run.manifest["clock"] = "wall"
    for cell in run.cells:
        cell["timers"] = QUIET
    run.cells[1]["timers"] = timers
    run.write(folder)
    if wait_ns is not None:
        rows = [
            {"cell": 1, "elapsed_ns": 1_000_000_000, "run_queue_wait_ns": wait_ns, "processors": 2},
            {"cell": 0, "elapsed_ns": 2_000_000_000, "run_queue_wait_ns": 0, "processors": 1},
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "records" / "waits.jsonl").write_text(text)
    return summarise(folder)


def test_a_machine_that_keeps_up_passes_and_its_counts_are_shown(tmp_path: Path) -> None:
    summary = written(tmp_path, QUIET, 100_000_000)
    assert summary["verdict"] == "pass"
    assert summary["cells"][1]["machine"] == {
        "timers": 400,
        "timers_late": 20,
        "timer_worst_ms": 1.4,
        "run_queue_wait_ms": 100.0,
        "run_queue_share": 0.05,
    }
    assert summary["cells"][2]["machine"]["run_queue_share"] is None


def test_timers_that_come_late_void_the_run(tmp_path: Path) -> None:
    summary = written(tmp_path, {"timers": 400, "late": 21, "worst_ns": 55_000_000}, None)
    assert (summary["verdict"], summary["exit_code"]) == ("invalid", 3)
    said = "CPU-bound: timers: 21 of 400 wake-ups came over 1 ms late (5.2%, at most 5%; the worst"
    assert summary["reasons"][0].startswith(f"a-b 50 km: {said}")
    cell = summary["cells"][1]
    assert (cell["valid"], cell["gain"]) == (False, None)
    console = table_console()
    with console.capture() as captured:
        print_run(summary, console)
    assert "void" in captured.get() and "CPU-bound: timers" in captured.get()


def test_who_computes_for_real_holds_the_processor_on_purpose(tmp_path: Path) -> None:
    late = {"timers": 400, "late": 300, "worst_ns": 55_000_000}
    summary = written(tmp_path / "own", late, 0, "real")
    assert summary["verdict"] == "pass"
    assert summary["cells"][1]["machine"]["timers_late"] == 300
    summary = written(tmp_path / "others", late, 500_000_000, "real")
    assert summary["verdict"] == "invalid"
    assert "CPU-bound: run queue" in summary["reasons"][0]


def test_waiting_for_a_processor_voids_the_run(tmp_path: Path) -> None:
    summary = written(tmp_path, QUIET, 500_000_000)
    assert summary["verdict"] == "invalid"
    assert "CPU-bound: run queue: ready and without a processor for 25.0%" in summary["reasons"][0]


def test_in_virtual_time_there_is_nothing_to_count(tmp_path: Path) -> None:
    summary = summarise(Run().write(tmp_path))
    assert all("machine" not in cell for cell in summary["cells"])
