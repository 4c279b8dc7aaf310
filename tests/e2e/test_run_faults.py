"""Faults of the machine and of a site inside a run: a clear error, in time, and no hang."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli import Geokv

from geokv.report.run_folder import make_run_folder
from geokv.scenario import load_scenario
from geokv.vm import Job
from geokv.vm.place import in_vm
from geokv.vm.supervise import run_jobs

DRIVER = Path(__file__).parent / "kill_a_site.py"
TINY = [
    "links.a-b.km=50",
    "workload.requests=1",
    "workload.warmup=0",
    "workload.prefix_tokens=256",
    "vm.memory=3GiB",
]


def test_killed_site_is_named(vm: None, tmp_path: Path) -> None:
    """Provider and asker, each killed in a run of its own, both at the same time."""
    scenario = load_scenario("smoke", TINY)
    victims = ("a", "b")
    jobs = []
    for victim in victims:
        folder = make_run_folder(scenario, exact=tmp_path / victim)
        argv = ("python", str(DRIVER), victim, str(folder), "0", "1")
        jobs.append(Job(argv, 3 * 2**30, watchdog_s=60))
    steps: list[list[dict[str, Any]]] = [[], []]
    started = time.monotonic()
    outcomes = run_jobs(
        in_vm("virtual"), jobs, lambda number, line: steps[number].append(json.loads(line))
    )
    assert time.monotonic() - started < 90
    for victim, outcome, said in zip(victims, outcomes, steps, strict=True):
        assert outcome.status == 4, outcome.errors
        assert "Traceback" not in outcome.errors
        error = said[-1]
        assert error["event"] == "error"
        assert f"site {victim} does not answer" in error["message"]
        assert "its process ended (-9)" in error["message"]
        assert error["t_ns"] < 60e9, "a dead site costs seconds of the run's time, not minutes"
    asked = [step for step in steps[0] if step["event"] == "request"]
    # The asker outlives its provider: recomputed, not refused.
    assert [step["error"] for step in asked if step["arm"] == "remote-hit"] == [None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "small", place], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr}")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(place: Path) -> None:
    """Take the last byte of a file system."""
    with (place / "ballast").open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(2**20))
        except OSError:
            pass
        try:
            while True:
                stream.write(bytes(1024))
        except OSError:
            pass


def test_full_disk_is_refused_before_the_run(vm: None, geokv: Geokv, small_disk: Path) -> None:
    fill(small_disk)
    started = time.monotonic()
    done = geokv("run", "smoke", "--out", small_disk / "run")
    assert done.returncode == 4
    assert "disk is full" in done.stderr
    assert "--out" in done.stderr
    assert time.monotonic() - started < 60, "a busy machine takes its time, a run much longer"


def test_disk_that_fills_up_during_the_run(vm: None, geokv: Geokv, small_disk: Path) -> None:
    folder = small_disk / "run"
    settings = [word for text in TINY for word in ("--set", text)]
    running = geokv.start("run", "smoke", *settings, "--out", folder)
    log = folder / "log.txt"
    ends = time.monotonic() + 60
    while not log.exists() or '"sites"' not in log.read_text():
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < ends
        time.sleep(0.02)
    fill(small_disk)
    try:
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 4, errors
    assert "Traceback" not in errors
    assert "disk is full" in errors
    assert str(folder) in errors
