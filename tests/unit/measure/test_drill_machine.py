"""A drill in real time on a machine that did not keep up is void, and the counter is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from handwritten_drill import SCENARIO, START_MS, Drill
from histories import ev
from typer.testing import CliRunner

from geokv.cli import app
from geokv.measure.comparing.sampled import sampled
from geokv.measure.drill.summary import summarise_drill
from geokv.report.console import print_run, table_console
from geokv.report.drill_csv import to_drill_csv
from geokv.report.history import merge_history
from geokv.report.page.statistics import statistics_section
from geokv.report.sheet.blocks import Heading, Table

QUIET = {"timers": 400, "late": 20, "worst_ns": 1_400_000}
LATE = {"timers": 400, "late": 21, "worst_ns": 55_000_000}
SAID = "CPU-bound: timers: 21 of 400 wake-ups came over 1 ms late (5.2%, at most 5%; the worst by"
WAITED = {"elapsed_ns": 1_000_000_000, "run_queue_wait_ns": 60_000_000, "processors": 1}
SAID_OUTSIDE = (
    "CPU-bound: run queue: ready and without a processor, which others had, for 6.0% of the time"
)
FREEZE = {"name": "ice", "kind": "site-freeze", "target": "b", "evidence": {}}


def in_real_time(
    *counted: dict[str, int] | None,
    compute: str = "charged",
    late_ns: dict[str, int | None] | None = None,
) -> Drill:
    """The drill by the wall clock, with what was counted of timers in each of its cells."""
    drill = Drill({**SCENARIO, "clock": "wall"})
    drill.manifest["clock"] = "wall"
    for cell, timers in enumerate(counted):
        if timers is not None:
            more = {"compute": compute, "timers": timers, "late_ns": late_ns or {"a": 0, "b": 0}}
            drill.cells[cell].insert(-3, ev(START_MS + 7000.5, "machine", **more))
    return drill


def summary_of(drill: Drill, folder: Path, **waits: dict[str, int]) -> dict[str, Any]:
    merge_history(drill.write(folder))
    if waits:
        lines = [json.dumps({"cell": int(name[1:]), **row}) for name, row in waits.items()]
        path = folder / "records" / "waits.jsonl"
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return summarise_drill(folder)


def test_a_machine_that_keeps_up_passes_and_its_counts_are_shown(tmp_path: Path) -> None:
    waited = {**WAITED, "run_queue_wait_ns": 50_000_000, "others_ns": 70_000_000}
    summary = summary_of(in_real_time(QUIET, None), tmp_path, c0=waited)
    assert (summary["verdict"], summary["reasons"]) == ("pass", [])
    cell, control = summary["cells"]
    assert cell["machine"] == {
        "timers": 400,
        "timers_late": 20,
        "timer_worst_ms": 1.4,
        "run_queue_wait_ms": 50.0,
        "others_ms": 70.0,
        "run_queue_share": 0.05,
    }
    assert cell["valid"] and "machine" not in control
    section = statistics_section(summary, tmp_path)
    assert section is not None
    at = section.blocks.index(Heading("Did the machine keep up?", 3))
    table = section.blocks[at + 1]
    assert isinstance(table, Table)
    assert table.rows == [["as written", "400", "20", "1.4", "50.0", "70.0", "5.0 %"]]


@pytest.mark.parametrize(
    ("timers", "waits", "said"),
    [(LATE, {}, SAID), (QUIET, {"c0": WAITED}, SAID_OUTSIDE), (None, {"c0": WAITED}, SAID_OUTSIDE)],
)
def test_one_that_does_not_voids_the_drill(
    timers: dict[str, int] | None, waits: dict[str, Any], said: str, tmp_path: Path
) -> None:
    summary = summary_of(in_real_time(timers, QUIET), tmp_path, **waits)
    assert (summary["verdict"], summary["exit_code"]) == ("invalid", 3)
    assert summary["reasons"][0].startswith(f"as written: {said}")
    cell, control = summary["cells"]
    assert (cell["verdict"], cell["valid"]) == ("invalid", False)
    assert cell["problems"][0].startswith(said)
    assert control["verdict"] == "fails as it must"
    head, row, _ = to_drill_csv(summary).splitlines()
    named = dict(zip(head.split(","), row.split(","), strict=True))
    assert named["ttft_p50_ms"] == named["cut_detected_ms"] == "" and named["requests"] == "60"
    assert not summary["gaps"]["mg7"]["cells"][0]["valid"]
    console = table_console()
    with console.capture() as captured:
        print_run(summary, console)
    assert "void" in captured.get() and "CPU-bound: " in captured.get()
    (sample,) = sampled(tmp_path).samples.values()
    assert sample.void.startswith(said)


def test_what_is_wrong_is_not_hidden_behind_it(tmp_path: Path) -> None:
    drill = in_real_time(LATE, QUIET)
    drill.of("answer", request_id="r3")[0]["output_ids"] = [7, 8, 0]
    drill.of("links", phase="after")[0].update(ok=False, problems=["rtt 2 ms"])
    summary = summary_of(drill, tmp_path)
    assert summary["verdict"] == "invalid"
    assert any("answered-wrongly" in said for said in summary["reasons"])
    late, link = summary["cells"][0]["problems"]
    # It is off because of the machine.
    assert late.startswith("CPU-bound") and link == "a-b after: rtt 2 ms"


def test_a_control_that_a_busy_machine_spoilt_shows_nothing(tmp_path: Path) -> None:
    """What is broken in it may be broken by the machine."""
    summary = summary_of(in_real_time(QUIET, LATE), tmp_path)
    assert summary["verdict"] == "invalid"
    assert summary["reasons"][0].startswith(f"control: {SAID}")
    (line,) = [one for one in summary["expectations"] if one["name"] == "control:corrupt"]
    assert line["ok"] is None and line["said"].startswith(f"the control shows nothing: {SAID}")
    cell, control = summary["cells"]
    assert (cell["verdict"], control["verdict"]) == ("pass", "invalid")


def test_who_computes_for_real_holds_the_processor_on_purpose(tmp_path: Path) -> None:
    summary = summary_of(in_real_time(LATE, QUIET, compute="real"), tmp_path / "own")
    assert summary["verdict"] == "pass" and summary["cells"][0]["machine"]["timers_late"] == 21
    drill = in_real_time(LATE, QUIET, compute="real")
    summary = summary_of(drill, tmp_path / "others", c0=WAITED)
    assert summary["verdict"] == "invalid" and SAID_OUTSIDE in summary["reasons"][0]


def test_computing_that_outlasts_its_charge_voids_the_drill(tmp_path: Path) -> None:
    summary = summary_of(in_real_time(QUIET, late_ns={"a": None, "b": 1_000_000}), tmp_path / "in")
    assert summary["verdict"] == "pass"
    drill = in_real_time(QUIET, late_ns={"a": None, "b": 1_100_000})
    summary = summary_of(drill, tmp_path / "late")
    assert summary["verdict"] == "invalid"
    said = "as written: CPU-bound: site b: computing outlasted its charge by 1.1 ms"
    assert summary["reasons"][0].startswith(said)


def test_a_site_that_a_fault_stopped_is_late_for_that_reason(tmp_path: Path) -> None:
    drill = in_real_time(QUIET, late_ns={"a": 0, "b": 900_000_000})
    drill.cells[0].append(ev(START_MS + 10, "fault", **FREEZE, phase="took-effect"))
    drill.cells[0].append(ev(START_MS + 20, "fault", **FREEZE, phase="healed"))
    drill.cells[0].sort(key=lambda event: int(event["t_ns"]))
    assert summary_of(drill, tmp_path)["cells"][0]["valid"]


def test_check_history_knows_what_was_counted_inside(tmp_path: Path) -> None:
    summary_of(in_real_time(QUIET, LATE), tmp_path / "late")
    result = CliRunner().invoke(app, ["check-history", str(tmp_path / "late")])
    assert result.exit_code == 3 and "history: invalid" in result.output
    assert "! CPU-bound: timers: 21 of 400" in result.output
    summary_of(in_real_time(QUIET, QUIET), tmp_path / "quiet")
    result = CliRunner().invoke(app, ["check-history", str(tmp_path / "quiet")])
    assert result.exit_code == 0 and "CPU-bound" not in result.output


def test_in_virtual_time_there_is_nothing_to_count(tmp_path: Path) -> None:
    summary = summary_of(Drill(), tmp_path)
    assert all("machine" not in cell for cell in summary["cells"])
