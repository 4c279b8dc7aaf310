"""The list of runs: which there are, and what becomes of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import yaml
from handwritten import MANIFEST, SCENARIO
from serving import GrowingRun, Served, finished_run, identity

from geokv.dashboard import shelf as shelf_module
from geokv.dashboard.shelf import Shelf


async def test_a_folder_that_is_not_there_has_no_runs(server: Served, root: Path) -> None:
    root.rmdir()
    assert await server.ids() == []


def test_runs_are_listed_newest_first_with_what_they_are(root: Path) -> None:
    old = finished_run(root, "by_hand/20260101-000000-0123abcd")
    new = GrowingRun(root, "by_hand/20260301-000000-0123abcd", pace=0.5, live=True)
    new.add("run", requests_total=24, event_format=1)
    new.add("cell", cell=0, label="a-b 0 km", t_ns=1)
    new.add("request", cell=0, warmup=True, t_ns=2)
    new.add("request", cell=0, warmup=False, t_ns=3)
    heads = Shelf(root).look()
    assert list(heads) == [identity(root, new.folder), identity(root, old)]
    running, done = heads.values()
    assert (running.state, running.verdict, running.doing) == ("running", "", "a-b 0 km")
    assert (running.done, running.total, running.pace, running.live) == (1, 24, "0.5×", True)
    assert running.started == "2026-03-01T00:00:00+00:00"
    assert (done.state, done.verdict, done.title) == ("finished", "pass", SCENARIO["title"])
    assert (done.clock, done.seed, done.drill, done.live) == ("virtual", 1, False, False)
    new.end()


@pytest.mark.parametrize(
    ("verdict", "state"), [("pass", "finished"), ("invalid", "finished"), (None, "ended")]
)
def test_a_run_goes_on_until_it_lets_go_of_its_events(
    root: Path, verdict: str | None, state: str
) -> None:
    run = GrowingRun(root, live=True)
    run.add("run", requests_total=3)
    shelf = Shelf(root)
    name = identity(root, run.folder)
    (run.folder / "summary.json").write_text('{"verdict": "fail", "cells": []}')
    head = shelf.head(name)
    assert head is not None and (head.state, head.verdict) == ("running", "")
    (run.folder / "summary.json").unlink()
    run.end(verdict)
    head = shelf.head(name)
    assert head is not None
    assert (head.state, head.verdict, head.live) == (state, verdict or "", False)


def test_a_run_of_before_there_were_events_has_ended_when_it_is_silent(root: Path) -> None:
    run = GrowingRun(root)
    run.end(None)
    (run.folder / "events.jsonl").unlink()
    log = run.folder / "log.txt"
    log.write_text('[0] {"event": "lab", "t_ns": 1}\n')
    name = identity(root, run.folder)

    def state() -> str:
        head = Shelf(root).head(name)
        assert head is not None
        return head.state

    assert state() == "running"
    long_ago = time.time() - 3600
    for path in run.folder.iterdir():
        os.utime(path, (long_ago, long_ago))
    assert state() == "ended"


def test_what_is_no_run_is_not_listed(root: Path, tmp_path: Path) -> None:
    run = finished_run(root)
    elsewhere = finished_run(tmp_path / "elsewhere")
    (root / "linked").symlink_to(elsewhere)
    (root / "by_hand" / "linked").symlink_to(run)
    for name in (".hidden", "with space", "tilde~name", "-dash"):
        folder = root / name
        folder.mkdir()
        (folder / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
        (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    deep = root / "one" / "two" / "three" / "four"
    deep.mkdir(parents=True)
    (deep / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
    (deep / "manifest.json").write_text(json.dumps(MANIFEST))
    assert list(Shelf(root).look()) == [identity(root, run)]


@pytest.mark.parametrize(
    ("scenario", "manifest", "named"),
    [
        ("a: [", "{}", "scenario.yaml"),
        ("- a", "{}", "scenario.yaml"),
        (yaml.safe_dump(SCENARIO), "{", "manifest.json"),
    ],
)
async def test_a_damaged_run_is_listed_with_what_is_wrong_with_it(
    server: Served, root: Path, scenario: str, manifest: str, named: str
) -> None:
    run = finished_run(root)
    (run / "scenario.yaml").write_text(scenario)
    (run / "manifest.json").write_text(manifest)
    name = identity(root, run)
    head = Shelf(root).look()[name]
    assert (head.name, head.state, head.verdict) == (run.name, "ended", "")
    assert named in head.unreadable
    detail = (await server.http.get(f"/api/runs/{name}")).json()
    assert detail["unreadable"] == head.unreadable
    assert "records" in str(detail["files"]), "its files are there all the same"


def test_a_summary_that_comes_later_is_seen(root: Path) -> None:
    run = GrowingRun(root)
    run.add("run")
    run.end(None)
    shelf, name = Shelf(root), identity(root, run.folder)
    before = shelf.look()[name]
    (run.folder / "summary.json").write_text('{"verdict": "unknown", "cells": []}')
    after = shelf.look()[name]
    assert (before.state, after.state, after.verdict) == ("ended", "finished", "unknown")


def test_of_very_many_the_newest_are_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "MOST_RUNS", 3)
    for month in range(1, 6):
        GrowingRun(root, f"by_hand/2026{month:02d}01-000000-0123abcd").end(None)
    shelf = Shelf(root)
    assert [one.split("~")[1][:6] for one in shelf.look()] == ["202605", "202604", "202603"]
    assert shelf.left_off == 2


async def test_what_is_said_of_each_cell_of_a_drill(server: Served, root: Path) -> None:
    """The page names a control by it."""
    run = finished_run(root)
    summary = json.loads((run / "summary.json").read_text())
    said = {"0": "pass", "1": "fails as it must"}
    cells = [{"cell": int(cell), "verdict": word} for cell, word in said.items()]
    (run / "summary.json").write_text(json.dumps(summary | {"cells": [*cells, {"cell": 2}, "?"]}))
    detail = (await server.http.get(f"/api/runs/{identity(root, run)}")).json()
    assert detail["verdicts"] == said


async def test_a_finished_run_in_full(server: Served, root: Path) -> None:
    run = finished_run(root)
    detail = (await server.http.get(f"/api/runs/{identity(root, run)}")).json()
    assert detail["question"] == SCENARIO["question"]
    assert detail["topology"]["links"] == [
        {"name": "a-b", "a": "a", "b": "b", "kind": "apn", "km": 50.0, "rate_bps": 10**11}
    ]
    assert [site["name"] for site in detail["topology"]["sites"]] == ["a", "b"]
    summary = json.loads((run / "summary.json").read_text())
    assert len(detail["judged"]) == len(summary["expectations"]) > 5
    assert all(one["ok"] is True for one in detail["judged"])
    assert {"report.html", "table.csv"} <= {one["path"] for one in detail["reports"]}
    assert detail["started_here"] is None


async def test_a_summary_of_another_shape_breaks_nothing(server: Served, root: Path) -> None:
    run = finished_run(root)
    for text in (
        '{"verdict": 3}',
        '{"verdict": "pass", "expectations": 5, "reasons": {}, "cells": null}',
        '{"verdict": "pass", "expectations": [1, {"name": "x"}]}',
        "[]",
        "{",
    ):
        (run / "summary.json").write_text(text)
        answer = await server.http.get(f"/api/runs/{identity(root, run)}")
        assert answer.status_code == 200 and answer.json()["judged"] == [], text
    scenario = {**SCENARIO, "topology": {"sites": {"a": None}, "links": {"a-b": None}}, "arms": 3}
    (run / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    detail = (await server.http.get(f"/api/runs/{identity(root, run)}")).json()
    assert detail["topology"]["links"][0]["km"] is None and detail["arms"] == []
