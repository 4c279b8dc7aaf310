"""A machine that does not keep up with the wall clock.

``tests/run_all.py`` runs this file beside no other: it takes every processor there is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli import SMALL, Geokv

BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True:\n    pass\n"


@pytest.fixture
def busy() -> Iterator[Callable[[], None]]:
    """A process of ours on every processor, that wants all of it; what it gives ends them."""
    processors = [str(one) for one in os.sched_getaffinity(0)]
    running = [subprocess.Popen([sys.executable, "-c", BUSY, one]) for one in processors]

    def end() -> None:
        for process in running:
            process.kill()
            process.wait()

    yield end
    end()


@pytest.mark.timeout(600)
def test_a_wall_run_on_a_busy_machine_is_invalid_and_names_the_counter(
    geokv: Geokv, vm: None, busy: Callable[[], None], tmp_path: Path
) -> None:
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
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "judging" in line:
            break
    busy()
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 3, "".join(said) + stdout + stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["verdict"] == "invalid"
    assert "CPU-bound: " in summary["reasons"][0]
    (cell,) = summary["cells"]
    machine = cell["machine"]
    assert machine["timers"] > 0
    assert machine["timers_late"] > 0.05 * machine["timers"]
    assert any("timers: " in said for said in cell["problems"])
    if Path("/proc/self/schedstat").exists():
        # Another at the same processor leaves it a half, however they are scheduled.
        assert machine["run_queue_share"] > 0.05
        assert any("run queue: " in said for said in cell["problems"])
    assert cell["arms"]["recompute"]["n"] == 1 and cell["gain"] is None
    assert "void" in stdout
