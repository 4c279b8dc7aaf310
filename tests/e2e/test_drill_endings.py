"""However ``geokv drill`` is told to end, nothing that it started is left, and it says what was
done until then."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli import Geokv
from test_drill_command import SLOW_S, drill_file

sys.path.append(str(Path(__file__).resolve().parents[1] / "vm"))
from processes import descendants, wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def started(geokv: Geokv) -> Iterator[list[subprocess.Popen[str]]]:
    """Commands that a test starts; they are gone after it."""
    commands: list[subprocess.Popen[str]] = []
    yield commands
    for one in commands:
        if one.poll() is None:
            one.kill()
            one.communicate(timeout=120)


def start(geokv: Geokv, started: list[subprocess.Popen[str]], *args: str | Path, seen: str) -> None:
    """In a process group of its own, until ``seen`` was said twice."""
    process = subprocess.Popen(
        geokv.command("drill", *args),
        cwd=geokv.folder,
        env=geokv.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(process)
    deadline = threading.Timer(SLOW_S, process.kill)
    deadline.start()
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if seen in line and sum(seen in one for one in said) == 2:
            break
    deadline.cancel()
    assert sum(seen in line for line in said) == 2, said


@pytest.mark.parametrize(
    ("number", "group", "status"),
    [
        (signal.SIGINT, False, 130),
        (signal.SIGTERM, False, 143),
        (signal.SIGTERM, True, 143),
        (signal.SIGHUP, True, 129),
        (signal.SIGKILL, False, -signal.SIGKILL),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGTERM to the group, as by timeout", "SIGHUP", "kill -9"],
)
def test_nothing_is_left_and_what_was_done_is_said(
    geokv: Geokv,
    vm: None,
    tmp_path: Path,
    started: list[subprocess.Popen[str]],
    number: signal.Signals,
    group: bool,
    status: int,
) -> None:
    """While both VMs run."""
    drills = [drill_file(tmp_path, name) for name in ("first", "second")]
    out = tmp_path / "out"
    start(geokv, started, *drills, "--jobs", "2", "--out", out, seen="cell")
    (process,) = started
    theirs = descendants(process.pid)
    forked = {pid for pid in theirs if "forkserver" in command_of(pid)}
    assert len(forked) == 3, "the one that forks, and two children"
    assert len(theirs) >= 7, "and two VMs with their guests"
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == status
    wait_gone(theirs, within_s=20 if number is signal.SIGKILL else 5)
    for name in ("first", "second"):
        last = (out / name / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1]
        assert json.loads(last)["event"] == "failed", last
    if number is not signal.SIGKILL:
        assert stdout.count("stopped") == 2


def test_a_hunt_says_what_it_has_found_so_far(
    geokv: Geokv, vm: None, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    path = drill_file(tmp_path, "hunted")
    hunt = ("--repeat", "4", "--jobs", "1", "--out", tmp_path)
    start(geokv, started, path, *hunt, seen=" pass after ")
    (process,) = started
    theirs = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    wait_gone(theirs)
    (folder,) = tmp_path.glob("hunt-*")
    rows = csv.DictReader((folder / "seeds.csv").read_text(encoding="utf-8").splitlines())
    assert [row["verdict"] for row in rows] == ["pass", "pass", "stopped", "stopped"]
    assert "seed 3: stopped" in stdout and "seed 4: stopped" in stdout
    assert str(folder / "seeds.csv") in stdout


def command_of(pid: int) -> str:
    """Its arguments; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
