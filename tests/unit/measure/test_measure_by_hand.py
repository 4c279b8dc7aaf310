"""Faults that somebody made while a drill ran: judged, shown as such, and not to be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handwritten_drill import SCENARIO, START_MS, Drill
from histories import ev

from geokv.report.run_folder import read_summary, write_all

EVENT = {"fault": "slow-gpu", "name": "slow-gpu-1", "at": 0.2, "site": "b", "factor": 2.0}


def by_hand(**phases: tuple[float, dict[str, Any]]) -> list[dict[str, Any]]:
    base = {"name": "slow-gpu-1", "kind": "slow-gpu", "target": "b", "by_hand": EVENT}
    return [
        ev(START_MS + ms, "fault", "b", **base, phase=phase.replace("_", "-"), evidence=evidence)
        for phase, (ms, evidence) in phases.items()
    ]


@pytest.fixture
def drill() -> Drill:
    one = Drill({**SCENARIO, "control": None})
    one.cells[0] += [ev(START_MS + 200, "command", do="inject", name="slow-gpu-1", id="x")]
    return one


def test_a_fault_by_hand_is_judged_and_shown_as_such(drill: Drill, tmp_path: Path) -> None:
    drill.cells[0] += by_hand(
        asked=(200, {}),
        took_effect=(201, {"seen": "it says 2"}),
        heal_asked=(400, {}),
        healed=(401, {"seen": "it says 1"}),
    )
    drill.cells[0] += [ev(START_MS + 400, "command", do="heal", name="slow-gpu-1", id="y")]
    drill.manifest["live"] = True
    run_dir = drill.write(tmp_path)
    write_all(run_dir)
    summary = read_summary(run_dir)
    assert summary["verdict"] == "pass"
    assert summary["by_hand"] == {
        "commands": ["inject slow-gpu-1", "heal slow-gpu-1"], "stopped": False,
    }  # fmt: skip
    faults = {one["name"]: one for one in summary["cells"][0]["faults"]}
    assert faults["slow-gpu-1"]["by_hand"] == EVENT and faults["cut"]["by_hand"] is None
    assert faults["slow-gpu-1"]["took_effect_ms"] == 201
    judged = {one["name"]: one["ok"] for one in summary["expectations"]}
    assert judged["fault-fired:slow-gpu-1"] is True and judged["fault-fired:cut"] is True
    sheet = (run_dir / "sheet.en.md").read_text()
    assert "slow-gpu-1: the GPU of b takes 2 times as long" in sheet
    assert "by hand, while it ran" in sheet and "No command repeats that" in sheet
    assert "to the nanosecond" not in sheet
    assert "実行中に手動で" in (run_dir / "sheet.ja.md").read_text()
    assert "slow-gpu-1 (by hand)" in (run_dir / "table.md").read_text()
    assert "No command repeats that" in (run_dir / "report.html").read_text()


def test_one_that_did_nothing_is_a_warning(drill: Drill, tmp_path: Path) -> None:
    said = "link a-b has no light to lose"
    drill.cells[0] += by_hand(asked=(200, {}), did_not_fire=(201, {"said": said}))
    summary = write_all(drill.write(tmp_path))
    assert summary["verdict"] == "pass"
    assert any(f"slow-gpu-1, made by hand, did nothing: {said}" in w or said in w
               for w in summary["warnings"])  # fmt: skip
    assert not any(one["name"] == "fault-fired:slow-gpu-1" for one in summary["expectations"])


def test_one_that_was_never_seen_to_heal_leaves_the_verdict_open(
    drill: Drill, tmp_path: Path
) -> None:
    drill.cells[0] += by_hand(
        asked=(200, {}),
        took_effect=(201, {"seen": "it says 2"}),
        heal_asked=(400, {}),
        did_not_heal=(900, {"said": "it still says 2"}),
    )
    summary = write_all(drill.write(tmp_path))
    assert summary["verdict"] == "unknown"
    assert any("fault-fired:slow-gpu-1" in reason for reason in summary["reasons"])


def test_a_run_nobody_touched_says_nothing_of_it(tmp_path: Path) -> None:
    run_dir = Drill().write(tmp_path)
    summary = write_all(run_dir)
    assert summary["by_hand"] is None
    sheet = (run_dir / "sheet.en.md").read_text()
    assert "to the nanosecond" in sheet and "by hand, while it ran" not in sheet
