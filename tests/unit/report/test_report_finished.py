"""Only a run whose records are whole is reported, exported and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from handwritten import Run
from handwritten_drill import Drill

from geokv.cli.compare import compare
from geokv.cli.export import export
from geokv.cli.report import Wanted, report
from geokv.errors import ConfigError, RunError
from geokv.live import EventLog
from geokv.report.run_folder import read_summary, write_all


def _report(run: Path) -> None:
    report(run, [Wanted.csv])


def _export(run: Path) -> None:
    export(run, run.parent / "trace.json")


def _compare(run: Path) -> None:
    compare([Run().write(run.parent / "base"), run])


COMMANDS = [_report, _export, _compare]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_goes_on_is_refused_and_its_folder_left_alone(
    tmp_path: Path, command: Callable[[Path], None]
) -> None:
    run = Drill().write(tmp_path / "drill")
    events = EventLog(run)
    before = sorted(run.rglob("*"))
    with pytest.raises(ConfigError, match="still going on") as caught:
        command(run)
    assert "wait for its end" in caught.value.hint
    assert sorted(run.rglob("*")) == before
    events.close()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["drill", "measurement"])
def test_a_run_that_was_killed_did_not_finish(
    tmp_path: Path, command: Callable[[Path], None], kind: str
) -> None:
    run = (Drill() if kind == "drill" else Run()).write(tmp_path / "run")
    (run / "records" / "requests.jsonl").unlink(missing_ok=True)
    events = EventLog(run)
    events.add({"event": "cell"})
    events.add({"event": "failed"})
    events.close()
    with pytest.raises(ConfigError, match="did not finish") as caught:
        command(run)
    assert "log.txt" in caught.value.hint
    assert not (run / "summary.json").exists()


def test_a_run_writes_its_own_report_and_one_that_broke_over_it_is_reported(
    run_dir: Path,
) -> None:
    """As on a full disk: the records are whole, only what is made of them is not."""
    events = EventLog(run_dir)
    events.add({"event": "report"})
    assert write_all(run_dir, ["csv"])["verdict"] == "pass"
    (run_dir / "summary.json").unlink()
    events.add({"event": "failed"})
    events.close()
    _report(run_dir)
    assert read_summary(run_dir)["verdict"] == "pass"


def test_a_file_is_called_one(run_dir: Path) -> None:
    write_all(run_dir, [])
    with pytest.raises(ConfigError, match=r"summary\.json: is a file") as caught:
        _report(run_dir / "summary.json")
    assert str(run_dir) in caught.value.hint
    with pytest.raises(ConfigError, match="no such run folder"):
        _report(run_dir / "nowhere")


def test_a_run_without_a_summary_goes_on_or_did_not_finish(run_dir: Path) -> None:
    events = EventLog(run_dir)
    with pytest.raises(RunError, match="cannot be read") as caught:
        read_summary(run_dir)
    assert "still goes on" in caught.value.hint
    events.close()
    with pytest.raises(RunError, match="cannot be read") as caught:
        read_summary(run_dir)
    assert "did not finish" in caught.value.hint
