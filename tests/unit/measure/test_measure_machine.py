"""A run in real time on a machine that did not keep up is void, and the counter is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from handwritten import SCENARIO, Run

from geokv.measure import summarise
from geokv.report.console import print_run, table_console

QUIET = {"timers": 400, "late": 20, "worst_ns": 1_400_000}


def written(
    folder: Path,
    timers: dict[str, int] | None,
    wait_ns: int | None,
    compute: str = "charged",
    **counted: int,
) -> dict[str, Any]:
    run = Run({**SCENARIO, "clock": "wall", "deployment": {"compute": compute}})
    run.manifest["clock"] = "wall"
    for cell in run.cells:
        cell["timers"] = QUIET
    run.cells[1]["timers"] = timers
    run.write(folder)
    if wait_ns is not None:
        rows = [
            {
                "cell": 1,
                "elapsed_ns": 1_000_000_000,
                "run_queue_wait_ns": wait_ns,
                "processors": 2,
                **counted,
            },
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
        "others_ms": None,
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
    said = "CPU-bound: run queue: ready and without a processor, which others had, for 25.0%"
    assert said in summary["reasons"][0]


def test_hand_overs_of_its_own_void_no_run(tmp_path: Path) -> None:
    """Counted on a processor that nobody else had but for 18 ms in each second."""
    waited = {"elapsed_ns": 10_000_000_000, "processors": 1}
    summary = written(tmp_path / "own", QUIET, 3_020_000_000, **waited, others_ns=180_000_000)
    assert summary["verdict"] == "pass"
    machine = summary["cells"][1]["machine"]
    assert (machine["run_queue_wait_ms"], machine["others_ms"]) == (3020.0, 180.0)
    assert machine["run_queue_share"] == 0.018
    summary = written(tmp_path / "others", QUIET, 3_020_000_000, **waited, others_ns=2_600_000_000)
    assert summary["verdict"] == "invalid"
    said = "CPU-bound: run queue: ready and without a processor, which others had, for 26.0%"
    assert said in summary["reasons"][0]


@pytest.mark.parametrize(
    ("timers", "waited_ns", "elapsed_ns"),
    [
        ({"timers": 1049, "late": 284, "worst_ns": 91_388_416}, 2_873_985_332, 10_514_600_422),
        ({"timers": 1037, "late": 303, "worst_ns": 15_994_880}, 3_796_654_369, 10_373_513_706),
    ],
)
def test_recorded_runs_whose_times_were_wrong_are_void(
    tmp_path: Path, timers: dict[str, int], waited_ns: int, elapsed_ns: int
) -> None:
    """Of smoke in a VM, as docs/measures.md tells; even if nobody else had the processor."""
    summary = written(tmp_path, timers, waited_ns, elapsed_ns=elapsed_ns, processors=1, others_ns=0)
    assert summary["verdict"] == "invalid"
    assert "CPU-bound: timers: " in summary["reasons"][0]
    assert not any("run queue" in said for said in summary["cells"][1]["problems"])


def test_others_void_nothing_while_the_run_wants_no_processor(tmp_path: Path) -> None:
    summary = written(tmp_path, QUIET, 40_000_000, others_ns=1_900_000_000)
    assert summary["verdict"] == "pass"
    assert summary["cells"][1]["machine"]["run_queue_share"] == 0.02


def test_in_virtual_time_there_is_nothing_to_count(tmp_path: Path) -> None:
    summary = summarise(Run().write(tmp_path))
    assert all("machine" not in cell for cell in summary["cells"])
