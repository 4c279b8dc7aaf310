"""Several seeds and runs beside each other, by whole runs."""

from __future__ import annotations

import csv
import io
import json

import pytest
from cli import SMALL, Geokv, Run


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
    page, rows = geokv.folder / "compared.html", geokv.folder / "compared.csv"
    done = geokv("compare", smoke.folder, smoke_again.folder, "--html", page, "--csv", rows)
    assert done.returncode == 0, done.stderr
    # Two requests are too few to say anything, and all the same none is a nanosecond apart.
    assert "1.0000" in done.stdout and "too few" in done.stdout
    pairs = list(csv.DictReader(io.StringIO(rows.read_text())))
    assert {(float(pair["ratio"]), pair["outcome"]) for pair in pairs} == {(1.0, "too few")}
    assert page.read_text().startswith("<!doctype html>")
    refused = geokv("compare", smoke.folder, other_seed.folder)
    assert refused.returncode == 2
    assert "seeds: [1] and [" in refused.stderr
    forced = geokv("compare", smoke.folder, other_seed.folder, "--force")
    assert forced.returncode == 0 and "compared by force" in forced.stdout


def test_in_virtual_time_a_busy_machine_changes_nothing(smoke: Run) -> None:
    records = smoke.folder / "records"
    assert not (records / "waits.jsonl").exists()
    lines = (records / "cells.jsonl").read_text().splitlines()
    assert all("timers" not in json.loads(line) for line in lines)
