"""Many drills: found by name, run apart from each other, summed up by the worst."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from geokv.drills.find import find_drills, load_drill, shipped_drills, without_control
from geokv.drills.suite import Ended, Task, exit_code, run_tasks
from geokv.drills.table import print_drills, row, titles, what_was_done
from geokv.drills.watch import Board, Lines
from geokv.ending import Stopped
from geokv.errors import ConfigError
from geokv.report.sheet.words import words_of
from geokv.scenario import Scenario, load_scenario

CHECKOUT = Path(__file__).resolve().parents[3]
CUT = CHECKOUT / "scenarios" / "drills" / "link-cut.yaml"


def broken(name: str) -> Scenario:
    """A drill that is refused before anything is made: nobody can plant its weakness."""
    data = yaml.safe_load(CUT.read_text(encoding="utf-8"))
    data["name"] = name
    data["control"]["sabotage"] = f"no-such-{name}"
    return load_scenario(data)


class Seen:
    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []

    def begun(self, number: int) -> None:
        self.said.append(("begun", number))

    def step(self, number: int, step: dict[str, Any]) -> None:
        self.said.append((step["event"], number))

    def ended(self, number: int, ended: Ended) -> None:
        self.said.append(("ended", number))


def ended(verdict: str) -> Ended:
    task = Task(verdict, load_drill(CUT))
    if verdict in ("error", "stopped"):
        return Ended(task, error="x" * (verdict == "error"), stopped=130 * (verdict == "stopped"))
    return Ended(task, summary={"verdict": verdict})


def test_names_paths_folders_and_all(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(CUT.read_text(encoding="utf-8"), encoding="utf-8")
    assert find_drills(["link-cut", str(mine), str(tmp_path)]) == [CUT, mine]
    assert find_drills(["all"]) == list(shipped_drills().values())
    with pytest.raises(ConfigError, match="no drill 'link-cat'; did you mean link-cut") as error:
        find_drills(["link-cat"])
    assert "link-cut" in error.value.hint


def test_every_shipped_drill_is_one_and_named_as_its_file() -> None:
    for name, path in shipped_drills().items():
        scenario = load_drill(path)
        assert scenario.name == name


def test_a_measurement_is_no_drill() -> None:
    with pytest.raises(ConfigError, match="is not a drill"):
        load_drill(CHECKOUT / "scenarios" / "smoke.yaml")


def test_controls_can_be_left_away() -> None:
    assert load_drill(CUT, without_control(CUT)).control is None
    assert len(load_drill(CUT, without_control(CUT)).cells()) == 1


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["pass", "pass"], 0),
        (["pass", "unknown", "invalid", "fail"], 1),
        (["unknown", "invalid", "pass"], 3),
        (["pass", "unknown"], 4),
        (["pass", "error"], 4),
        (["error", "invalid"], 3),
        (["fail", "stopped"], 130),
        ([], 4),
    ],
)
def test_the_exit_code_is_that_of_the_worst(verdicts: list[str], code: int) -> None:
    assert exit_code([ended(one) for one in verdicts]) == code


def test_a_drill_that_breaks_ends_no_other(tmp_path: Path) -> None:
    tasks = [Task(name, broken(name), tmp_path / name) for name in ("one", "two", "three")]
    seen = Seen()
    found = run_tasks(tasks, 2, seen)
    assert [one.task.name for one in found] == ["one", "two", "three"]
    for one in found:
        assert one.verdict == "error" and f"no-such-{one.task.name}" in one.error
        assert "known:" in one.hint
    assert sorted(seen.said) == sorted((w, n) for n in range(3) for w in ("begun", "ended"))


def test_a_child_that_dies_is_said_to_have(tmp_path: Path, monkeypatch: Any) -> None:
    from geokv.drills import suite

    class Killed(suite.Child):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            os.kill(self.process.pid or 0, signal.SIGKILL)

    monkeypatch.setattr(suite, "Child", Killed)
    (one,) = run_tasks([Task("one", broken("one"), tmp_path / "one")], 1, Seen())
    assert one.verdict == "error" and "ended by itself" in one.error


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_what_runs_and_says_what_was_done(
    tmp_path: Path, name: str, status: int
) -> None:
    """A second one, while things are put away, changes nothing."""
    code = f"""
        import os, signal, sys, time
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_drills_suite import Seen, broken
        from geokv.drills.suite import Task, exit_code, run_tasks
        from geokv.ending import take_signals

        # What was started in the background of a shell has it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        take_signals()

        class Impatient(Seen):
            def begun(self, number):
                os.kill(os.getpid(), signal.{name})
            def ended(self, number, ended):
                os.kill(os.getpid(), signal.{name})

        tasks = [Task(n, broken(n), Path({str(tmp_path)!r}) / n) for n in ("one", "two")]
        found = run_tasks(tasks, 1, Impatient())
        print([one.verdict for one in found], exit_code(found))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=200, cwd=CHECKOUT, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    verdicts, code_ = done.stdout.rsplit(" ", 1)
    assert verdicts.endswith("'stopped']") and code_.strip() == str(status)


def test_what_is_stopped_while_it_is_started_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geokv.drills import suite

    def told(*_: Any) -> None:
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(suite, "Child", told)
    found = run_tasks([Task(n, broken(n), tmp_path / n) for n in ("one", "two")], 1, Seen())
    assert [one.verdict for one in found] == ["stopped", "stopped"] and exit_code(found) == 143


def test_the_table_in_both_languages() -> None:
    scenario = load_drill(CUT)
    for language in ("en", "ja"):
        words = words_of(language)  # type: ignore[arg-type]
        assert len(row(ended("error"), words)) == len(titles(words)) == 8
        assert what_was_done(scenario, words) == words.faults["link-cut"].format(link="a-b")
        console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
        print_drills([ended("error"), ended("stopped")], words, console)
        said = console.export_text()
        assert words.text["error"] in said and words.text["stopped"] in said
        assert "error: x" in said
        console.file.close()


def test_progress_as_lines_and_as_a_table() -> None:
    tasks = [Task("link-cut", load_drill(CUT)), Task("other", load_drill(CUT))]
    steps: list[dict[str, Any]] = [
        {"event": "folder", "path": "/x", "parts": 1},
        {"event": "cell", "cell": 0, "label": "as written", "part": 0},
        {"event": "check", "part": 0},
        *[{"event": "request", "part": 0}] * 3,
        {"event": "fault", "name": "cut", "phase": "took-effect", "part": 0},
    ]
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with Lines(tasks, console) as lines:
        lines.begun(0)
        for step in steps:
            lines.step(0, step)
        lines.ended(0, ended("fail"))
    said = console.export_text()
    assert "link-cut  begins" in said and "cut: took effect" in said and "fail after" in said
    assert len(said.splitlines()) == 4
    board = Board(tasks, console)
    board.begun(0)
    for step in steps:
        board.step(0, step)
    console.print(board.render())
    said = console.export_text()
    assert "cut: took effect" in said and "0 of 2 done, 1 waiting" in said
    assert "≈ 0 s" in said, "three of its requests came at once"
    board.ended(0, ended("fail"))
    console.print(board.render())
    assert "1 of 2 done, 1 waiting" in console.export_text()
    console.file.close()
