"""Several seeds, runs beside each other, and a machine that does not keep up, by whole runs."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli import SMALL, Geokv, Run

BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True:\n    pass\n"


def test_every_cell_is_run_with_every_seed(geokv: Geokv, vm: None) -> None:
    run = geokv.run_scenario("smoke", *SMALL, "--set", "links.a-b.km=50", "--seeds", "1-2")
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    assert "seeds 1–2" in run.done.stdout
    (cell,) = run.summary["cells"]
    assert [one["seed"] for one in cell["by_seed"]] == [1, 2]
    medians = [one["ttft_p50_ms"]["remote_hit"] for one in cell["by_seed"]]
    assert cell["arms"]["remote_hit"]["ttft_p50_ms"] == pytest.approx(sum(medians) / 2, abs=0.001)
    assert run.summary["statistics"]["unit"] == "seed"
    (row,) = csv.DictReader(io.StringIO((run.folder / "table.csv").read_text()))
    assert row["remote_hit_n"] == "2"
    rows = (run.folder / "records" / "requests.jsonl").read_text().splitlines()
    answers = {
        json.loads(line)["cell"]: json.loads(line)["output_ids"]
        for line in rows
        if json.loads(line)["arm"] == "recompute"
    }
    assert answers[0] != answers[1], "another seed asks another thing of other weights"


def test_a_run_and_its_repetition_are_equal_and_another_seed_is_refused(
    geokv: Geokv, smoke: Run, smoke_again: Run, other_seed: Run
) -> None:
    page = geokv.folder / "compared.html"
    done = geokv("compare", smoke.folder, smoke_again.folder, "--html", page)
    assert done.returncode == 0, done.stderr
    # Two requests are too few to say anything, and all the same none is a nanosecond apart.
    assert "1.0000" in done.stdout and "too few" in done.stdout
    assert "slower" not in done.stdout.split("Medians")[0]
    assert page.read_text().startswith("<!doctype html>")
    refused = geokv("compare", smoke.folder, other_seed.folder)
    assert refused.returncode == 2
    assert "seeds: [1] and [" in refused.stderr
    forced = geokv("compare", smoke.folder, other_seed.folder, "--force")
    assert forced.returncode == 0 and "compared by force" in forced.stdout


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


def test_in_virtual_time_a_busy_machine_changes_nothing(smoke: Run) -> None:
    records = smoke.folder / "records"
    assert not (records / "waits.jsonl").exists()
    lines = (records / "cells.jsonl").read_text().splitlines()
    assert all("timers" not in json.loads(line) for line in lines)
