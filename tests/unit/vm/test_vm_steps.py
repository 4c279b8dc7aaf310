"""What a user's code prints beside the steps of a run is text, and ends nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geokv import runner
from geokv.errors import LabError, RunError
from geokv.report.console import table_console
from geokv.report.progress.lines import Lines
from geokv.report.progress.plan import plan_of
from geokv.scenario import load_scenario
from geokv.vm import Job, Place
from geokv.vm.job import Outcome
from geokv.vm.steps import error_of, step_of, taker

TEXT = (
    "5", "null", "[1]", '{"a": 1}', '"event"', "true", "NaN", "", "{", '{"event": 5}',
    "[" * 100_000, '{"event": null}', '{"event": "error"}', '{"event": "error", "message": 1}',
    '{"event": "cell"}', '{"event": "fault", "name": "mine"}', '{"event": "check", "phase": 3}',
    '{"event": "folder"}',
)  # fmt: skip


@pytest.mark.parametrize("line", TEXT)
def test_a_line_that_is_no_step_is_text(line: str) -> None:
    shown: list[str] = []
    steps: list[dict[str, Any]] = []
    taker(steps, shown.append)(line)
    assert (steps, shown) == ([], [line])


def test_an_event_that_nobody_knows_is_a_step() -> None:
    assert step_of('{"event": "mine", "x": 1}') == {"event": "mine", "x": 1}


def test_an_error_keeps_its_words_and_its_exit_code() -> None:
    step = {"event": "error", "message": "no", "hint": "yes", "exit_code": 3}
    error = error_of(step, LabError)
    assert isinstance(error, LabError)
    assert (error.message, error.hint, error.exit_code) == ("no", "yes", 3)
    assert error_of({"event": "cell"}, LabError) is None


def test_what_a_fault_prints_is_in_the_log_and_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = load_scenario("smoke")
    steps = [
        {"event": "cell", "cell": 0, "label": "a-b 0 km"},
        {"event": "error", "message": "the lab is gone", "hint": "", "exit_code": 4},
    ]
    lines = [json.dumps(steps[0]), *TEXT, json.dumps(steps[1])]

    def run_jobs(place: Place, jobs: list[Job], on_line: Any, *_: Any, **__: Any) -> list[Outcome]:
        """In place of VMs: one that prints all this."""
        for line in lines:
            on_line(0, line)
        return [Outcome(0, "")]

    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    seen: list[dict[str, Any]] = []
    plan = plan_of(scenario)
    place = Place("virtual", "none", None)

    said = Lines(plan, table_console())

    def tell(step: dict[str, Any]) -> None:
        seen.append(step)
        said.take(step)

    with pytest.raises(RunError, match="the lab is gone"):
        runner._run_parts(place, scenario, tmp_path, 1, tell, None, False, lambda: False)
    assert [{k: v for k, v in one.items() if k != "part"} for one in seen] == steps
    log = (tmp_path / "log.txt").read_text().splitlines()
    assert log == [f"[0] {line}" for line in lines]
