"""What a hunt says of its seeds."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from geokv.drills.find import load_drill
from geokv.drills.hunt import (
    COLUMNS,
    MOST_RUNS,
    SEEDS,
    Hunt,
    _Keeper,
    _Runs,
    broken,
    print_hunt,
    to_csv,
)
from geokv.drills.suite import Ended, Task
from geokv.report.sheet.words import words_of

FETCHES = {"served": 80, "unused": 3, "retried": 4, "recomputed": 2, "failed": 1, "wrong": 0}
CHAOS = Path(__file__).resolve().parents[3] / "scenarios" / "drills" / "chaos.yaml"


def summary(verdict: str, lines: dict[str, bool | None], wrong: int = 0) -> dict[str, Any]:
    cell = {
        "control": False, "valid": True, "requests": 100, "answered": 97, "ttft_max_ms": 244.6,
        "fates": {"requests": {"wrong": wrong, "unanswered": 1}, "fetches": FETCHES},
        "faults": [],
    }  # fmt: skip
    judged = [{"name": name, "ok": ok, "said": f"said {name}"} for name, ok in lines.items()]
    reasons = [f"{one['name']}: {one['said']}" for one in judged if one["ok"] is False]
    return {"verdict": verdict, "cells": [cell], "expectations": judged, "reasons": reasons}


@pytest.fixture
def found(tmp_path: Path) -> Hunt:
    scenario = load_drill(CHAOS)
    kept = tmp_path / "seed-8"
    kept.mkdir()
    (kept / "shrunk.yaml").write_text(scenario.to_yaml(), encoding="utf-8")
    ended = [
        Ended(
            Task("chaos seed 7", scenario), tmp_path / "seed-7", summary("pass", {"stale": True}),
        ),
        Ended(
            Task("chaos seed 8", scenario), kept,
            summary("fail", {"stale": False, "leaked": False, "links": None, "corrupt": True}, 2),
        ),
        Ended(Task("chaos seed 9", scenario), error="the VM ran out of memory"),
    ]  # fmt: skip
    return Hunt("chaos", tmp_path, [7, 8, 9], ended, {8: (kept / "shrunk.yaml", 21)})


def test_only_what_is_false_is_broken() -> None:
    lines = {"stale": False, "links": None, "corrupt": True}
    assert broken(summary("fail", lines)) == {"stale"}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_per_seed(found: Hunt) -> None:
    rows = rows_of(to_csv(dict(zip(found.seeds, found.ended, strict=True))))
    assert tuple(rows[0]) == COLUMNS
    assert [row["seed"] for row in rows] == ["7", "8", "9"]
    assert [row["verdict"] for row in rows] == ["pass", "fail", "error"]
    assert rows[1] | {"real_s": ""} == {
        "seed": "8", "verdict": "fail", "asked": "100", "answered": "97", "fetches": "90",
        "lost": "7", "wrong": "2", "hung": "1", "leaked": "1", "broken": "leaked stale",
        "real_s": "",
    }  # fmt: skip
    assert rows[2]["asked"] == ""


class Told:
    """A watch that only remembers."""

    def __init__(self) -> None:
        self.over: list[int] = []

    def begun(self, number: int) -> None: ...

    def step(self, number: int, step: dict[str, Any]) -> None: ...

    def ended(self, number: int, ended: Ended) -> None:
        self.over.append(number)


def test_what_has_come_out_is_written_while_the_hunt_goes_on(found: Hunt) -> None:
    (found.folder / "seed-7").mkdir()
    told = Told()
    keeper = _Keeper(told, found.folder, found.seeds)
    for number in (2, 0, 1):
        keeper.ended(number, found.ended[number])
        rows = rows_of((found.folder / SEEDS).read_text(encoding="utf-8"))
        assert [row["seed"] for row in rows] == [str(7 + one) for one in sorted(told.over)]
    assert told.over == [2, 0, 1]
    assert not (found.folder / "seed-7").exists(), "it passed"
    assert (found.folder / "seed-8").exists()


def test_what_failed_can_be_repeated_by_a_command(found: Hunt) -> None:
    for language in ("en", "ja"):
        words = words_of(language)  # type: ignore[arg-type]
        console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
        print_hunt(found, words, console)
        said = console.export_text()
        console.file.close()
        # Sums over all seeds: three ran, one passed, 200 asked of the two that came to an end.
        sums = ["200", "194", "180", "14", "2", "2", "1"]
        assert said.splitlines()[3].split()[:10] == ["chaos", "3", "1", *sums]
        assert f"geokv run {found.folder}/seed-8/scenario.yaml" in said
        assert f"geokv run {found.folder}/seed-8/shrunk.yaml" in said and "21" in said
        assert "seed-7" not in said, "what passed needs no command"
        assert "the VM ran out of memory" in said


def test_shrinking_ends_when_its_runs_are_used_up(tmp_path: Path) -> None:
    runs = _Runs({"stale"}, tmp_path, 2, Console(file=io.StringIO()))
    runs.count = MOST_RUNS
    assert runs.first_failing([load_drill(CHAOS).resolved()]) is None
    assert runs.said == [f"stopped after {MOST_RUNS} runs"]


def test_what_is_no_scenario_does_not_fail(tmp_path: Path) -> None:
    """As a fault that waits for one that was taken away."""
    drill = load_drill(CHAOS).resolved()
    drill["timeline"] = [{"fault": "site-freeze", "site": "a", "when": "faults.gone.healed"}]
    runs = _Runs({"stale"}, tmp_path, 2, Console(file=io.StringIO()))
    assert runs.first_failing([drill]) is None
    assert runs.count == 0
