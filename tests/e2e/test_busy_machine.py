"""A machine that does not keep up with the wall clock.

``tests/run_all.py`` runs this file beside no other: it takes every processor there is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli import SMALL, Geokv

BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True:\n    pass\n"


class Busy:
    """A process of ours on every processor, that wants all of it."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        for one in os.sched_getaffinity(0):
            self._running.append(subprocess.Popen([sys.executable, "-c", BUSY, str(one)]))

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()


@pytest.fixture
def busy() -> Iterator[Busy]:
    made = Busy()
    yield made
    made.end()


@pytest.mark.timeout(600)
def test_a_wall_run_on_a_busy_machine_is_invalid_and_names_the_counter(
    geokv: Geokv, vm: None, busy: Busy, tmp_path: Path
) -> None:
    busy.begin()
    process = geokv.start(
        *("run", "smoke"),
        *SMALL,
        *("--clock", "wall"),
        *("--set", "links.a-b.km=50"),
        *("--set", "links.a-b.rate=1G"),
        *("--set", "deployment.byte_scale=64"),
        *("--set", "vm.jobs=1"),
        *("--set", "vm.watchdog=240s"),
        *("--out", tmp_path / "run"),
    )
    stdout = ended_invalid(process, read_to(process, "judging"), busy)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["verdict"] == "invalid"
    assert "CPU-bound: " in summary["reasons"][0]
    (cell,) = summary["cells"]
    assert_both_counters_speak_against(cell)
    assert cell["arms"]["recompute"]["n"] == 1 and cell["gain"] is None
    assert "void" in stdout


@pytest.mark.timeout(600)
def test_so_is_a_drill_by_the_wall_clock(
    geokv: Geokv, vm: None, busy: Busy, tmp_path: Path
) -> None:
    process = geokv.start(
        *("drill", "link-cut", "--no-control"),
        *("--set", "clock=wall"),
        *("--set", "vm.watchdog=240s"),
        *("--out", tmp_path),
    )
    # Links are checked, sites are prepared: until then it has the processors for itself.
    said = read_to(process, "cut: asked")
    busy.begin()
    stdout = ended_invalid(process, said + read_to(process, "judging"), busy)
    assert "CPU-bound: timers: " in stdout
    summary = json.loads((tmp_path / "link-cut" / "summary.json").read_text())
    assert summary["verdict"] == "invalid"
    assert summary["reasons"][0].startswith("as written: CPU-bound: ")
    (cell,) = summary["cells"]
    assert_both_counters_speak_against(cell)
    assert not cell["valid"] and cell["requests"] == 60


def read_to(process: subprocess.Popen[str], words: str) -> str:
    """Its standard error up to the line that has them."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it ended and never said {words!r}:\n{said}")


def ended_invalid(process: subprocess.Popen[str], said: str, busy: Busy) -> str:
    """What it printed; from where it is judged nobody is in its way.

    Args:
        said: on its standard error, until then.
    """
    busy.end()
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 3, said + stdout + stderr
    return stdout


def assert_both_counters_speak_against(cell: dict[str, Any]) -> None:
    machine = cell["machine"]
    assert machine["timers"] > 0
    assert machine["timers_late"] > 0.05 * machine["timers"]
    assert any("timers: " in said for said in cell["problems"])
    if Path("/proc/self/schedstat").exists():
        # Another at the same processor leaves it a half, however they are scheduled.
        assert machine["run_queue_share"] > 0.05
        assert any("run queue: " in said for said in cell["problems"])
