"""A machine that does not keep up with the wall clock.

``tests/run_all.py`` runs this file beside no other: it takes every processor there is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli import SMALL, Geokv

BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True:\n    pass\n"


@pytest.fixture
def busy() -> Iterator[None]:
    """Three processes of ours on every processor, that want all of it."""
    processors = [str(one) for one in os.sched_getaffinity(0) for _ in range(3)]
    running = [subprocess.Popen([sys.executable, "-c", BUSY, one]) for one in processors]
    yield
    for process in running:
        process.kill()
        process.wait()


def test_a_wall_run_on_a_busy_machine_is_invalid_and_names_the_counter(
    geokv: Geokv, vm: None, busy: None
) -> None:
    run = geokv.run_scenario(
        "smoke",
        *SMALL,
        *("--clock", "wall"),
        *("--set", "links.a-b.km=50"),
        *("--set", "links.a-b.rate=1G"),
        *("--set", "deployment.byte_scale=64"),
        *("--set", "vm.jobs=1"),
        *("--set", "vm.watchdog=240s"),
        timeout=400,
    )
    assert run.done.returncode == 3, run.done.stdout + run.done.stderr
    assert run.summary["verdict"] == "invalid"
    assert "CPU-bound: " in run.summary["reasons"][0]
    (cell,) = run.summary["cells"]
    machine = cell["machine"]
    assert machine["timers"] > 0
    assert machine["timers_late"] > 0.05 * machine["timers"]
    assert any("timers: " in said for said in cell["problems"])
    if Path("/proc/self/schedstat").exists():
        # Three others at the same processor leave it a quarter, however they are scheduled.
        assert machine["run_queue_share"] > 0.05
        assert any("run queue: " in said for said in cell["problems"])
    assert cell["arms"]["recompute"]["n"] == 1 and cell["gain"] is None
    assert "void" in run.done.stdout
