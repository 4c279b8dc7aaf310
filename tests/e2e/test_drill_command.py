"""``geokv drill`` as a user types it: many at once, and a hunt that shrinks."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli import Geokv

from geokv.paths import CHECKOUT
from geokv.scenario import load_scenario

LINK_CUT = CHECKOUT / "scenarios" / "drills" / "link-cut.yaml"
SLOW_S = 400.0
"""On a machine that others use, too."""


def drill_file(folder: Path, name: str, **changes: Any) -> Path:
    """A link that is cut for 200 ms, and a GPU that is a bit slow before it."""
    data = yaml.safe_load(LINK_CUT.read_text(encoding="utf-8"))
    data |= {"name": name, "control": None}
    data["workload"] |= {"requests": 16, "prefixes": 2, "quiesce": "200ms"}
    data["timeline"] = [
        {"fault": "slow-gpu", "site": "b", "at": "100ms", "for": "50ms", "factor": 1.1},
        {"fault": "link-cut", "link": "a-b", "at": "300ms", "for": "200ms", "name": "cut"},
    ]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data | changes), encoding="utf-8")
    return path


def test_drills_run_side_by_side_and_one_that_breaks_ends_no_other(
    geokv: Geokv, vm: None, tmp_path: Path
) -> None:
    """The second cannot be carried out at all: nobody knows its sabotage."""
    good = drill_file(tmp_path, "good")
    broken = drill_file(
        tmp_path, "broken", control={"sabotage": "no-such-thing", "fails": ["stale"]}
    )
    out = tmp_path / "out"
    done = geokv("drill", good, broken, "--out", out, "--lang", "ja", timeout=SLOW_S)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "合格" in done.stdout and "実行不可" in done.stdout
    assert "control.sabotage: unknown 'no-such-thing'" in done.stdout
    assert str(out / "good" / "sheet.ja.html") in done.stdout
    assert "good    cut: took effect" in done.stderr
    for language in ("en", "ja"):
        assert (out / "good" / f"sheet.{language}.md").stat().st_size > 2000
        page = (out / "good" / f"sheet.{language}.html").read_text(encoding="utf-8")
        assert page.count("<svg") == 1 and "cut · a-b" in page
    assert json.loads((out / "good" / "summary.json").read_text())["verdict"] == "pass"


@pytest.mark.timeout(600)
def test_a_hunt_keeps_what_fails_and_shrinks_it(geokv: Geokv, vm: None, tmp_path: Path) -> None:
    """A TTFT that nobody can keep: neither the faults nor more than one request are needed."""
    promise = {"drill": {"ttft_p99_at_most": "1ms"}}
    path = drill_file(tmp_path, "hunted", expect=promise)
    done = geokv("drill", path, "--repeat", 1, "--seed-from", 5, "--out", tmp_path, timeout=550)
    assert done.returncode == 1, done.stdout + done.stderr
    (folder,) = tmp_path.glob("hunt-*")
    (row,) = csv.DictReader((folder / "seeds.csv").read_text(encoding="utf-8").splitlines())
    assert (row["seed"], row["verdict"]) == ("5", "fail")
    assert row["broken"] == "expect:ttft_p99_at_most"
    kept = folder / "seed-5"
    assert yaml.safe_load((kept / "scenario.yaml").read_text(encoding="utf-8"))["seed"] == 5
    assert f"geokv run {kept}/scenario.yaml" in done.stdout
    assert f"geokv run {kept}/shrunk.yaml" in done.stdout
    shrunk = load_scenario(kept / "shrunk.yaml")
    assert (shrunk.timeline, shrunk.workload.requests, shrunk.seed) == ([], 1, 5)
    tried = (kept / "shrink.txt").read_text(encoding="utf-8").splitlines()
    assert tried[0] == "16 requests, no fault (run 1): breaks expect:ttft_p99_at_most"
    assert not list(folder.glob("shrink-*")), "its runs are tidied up"


GUILTY: list[dict[str, Any]] = [
    {"fault": "slow-gpu", "site": "b", "at": "20ms", "for": "30ms", "factor": 1.1},
    {"fault": "site-freeze", "site": "b", "at": "120ms", "for": "600ms", "name": "guilty"},
]
"""Who is asked is frozen for longer than its requests may take; what comes before does no harm."""


@pytest.mark.timeout(1500)
def test_a_hunt_finds_the_guilty_one_of_two_faults_and_keeps_its_run(
    geokv: Geokv, vm: None, tmp_path: Path
) -> None:
    path = drill_file(tmp_path, "guilty", timeline=GUILTY)
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["workload"] |= {"requests": 4, "deadline": "300ms"}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    done = geokv("drill", path, "--repeat", 1, "--seed-from", 5, "--out", tmp_path, timeout=1200)
    assert done.returncode == 1, done.stdout + done.stderr
    (folder,) = tmp_path.glob("hunt-*")
    (row,) = csv.DictReader((folder / "seeds.csv").read_text(encoding="utf-8").splitlines())
    assert (row["seed"], row["verdict"]) == ("5", "fail")
    kept = folder / "seed-5"
    assert f"geokv run {kept}/scenario.yaml" in done.stdout
    assert f"geokv run {kept}/shrunk.yaml" in done.stdout
    lines = json.loads((kept / "summary.json").read_text())["expectations"]
    broken = {line["name"] for line in lines if line["ok"] is False}
    assert "never-answered" in broken and row["broken"].split() == sorted(broken)
    fired = [line["ok"] for line in lines if line["name"].startswith("fault-fired:")]
    assert fired == [True] * 2, "the innocent happened, too"
    shrunk = load_scenario(kept / "shrunk.yaml")
    assert [event.title for event in shrunk.timeline] == ["guilty"]
    assert shrunk.workload.requests < 4 and shrunk.seed == 5
    tried = (kept / "shrink.txt").read_text(encoding="utf-8").splitlines()
    assert tried[:2] == ["4 requests, no fault (run 1): pass", "4 requests, slow-gpu (run 2): pass"]
    assert not list(folder.glob("shrink-*")), "its runs are tidied up"
    # What was kept of the hunt is its run to the byte; what is left of it breaks the same.
    again = geokv.run_scenario(kept / "scenario.yaml", timeout=SLOW_S)
    assert again.done.returncode == 1
    for name in ("history.jsonl", "table.csv"):
        assert (again.folder / name).read_bytes() == (kept / name).read_bytes(), name
    least = geokv.run_scenario(kept / "shrunk.yaml", timeout=SLOW_S)
    left = {line["name"] for line in least.summary["expectations"] if line["ok"] is False}
    assert least.done.returncode == 1 and left & broken


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_list(geokv: Geokv, language: str) -> None:
    done = geokv("drill", "list", "--lang", language)
    assert done.returncode == 0
    assert "link-cut" in done.stdout and "chaos" in done.stdout
