"""A drill as a user runs it: repeatable to the byte, failing where it must, and never passing
when nothing happened."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest
from cli import Geokv, Run

from geokv.measure.records import Spans
from geokv.paths import CHECKOUT

LINK_CUT = CHECKOUT / "scenarios" / "drills" / "link-cut.yaml"


@pytest.fixture(scope="module")
def runs(geokv: Geokv, vm: None) -> list[Run]:
    """The same twice, in two VMs at the same time."""
    return geokv.run_scenarios([LINK_CUT], [LINK_CUT])


@pytest.fixture(scope="module")
def late(geokv: Geokv, vm: None) -> Run:
    """The cut would come long after the last question; another seed."""
    sets = ("--set", "timeline.0.at=60s", "--set", "workload.requests=10", "--set", "control=null")
    return geokv.run_scenario(LINK_CUT, *sets, "--seed", "2")


def test_a_cut_link_costs_misses_and_no_answer(runs: list[Run]) -> None:
    run = runs[0]
    assert run.done.returncode == 0, run.done.stdout
    assert run.summary["verdict"] == "pass"
    lines = {one["name"]: one["ok"] for one in run.summary["expectations"]}
    for name in ("never-answered", "answered-wrongly", "fault-fired:cut", "links"):
        assert lines[name] is True, name
    assert lines["control:never-answered"] is True
    drill, control = run.summary["cells"]
    assert (drill["label"], control["label"]) == ("as written", "control")


def test_the_same_seed_is_the_same_to_the_last_byte(runs: list[Run]) -> None:
    first, second = (run.folder for run in runs)
    names = ["history.jsonl", "table.csv", "summary.json"]
    names += [str(path.relative_to(first)) for path in sorted((first / "records").iterdir())]
    assert len(names) == 3 + 2 * 3
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_history_says_what_was_seen_and_what_hung(runs: list[Run]) -> None:
    events = [json.loads(line) for line in _history(runs[0].folder).splitlines()]
    # Whether the machine keeps up is no question in virtual time.
    assert not any(event["op"] == "machine" for event in events)
    for cell in (0, 1):
        mine = [event for event in events if event["cell"] == cell]
        assert [e["t_ns"] for e in mine] == sorted(e["t_ns"] for e in mine)
        phases = [e["phase"] for e in mine if e["op"] == "fault"]
        assert phases == ["asked", "took-effect", "heal-asked", "healed"]
        asked = {e["request_id"] for e in mine if e["op"] == "request"}
        ended = {e["request_id"] for e in mine if e["op"] in ("answer", "unanswered")}
        assert asked == ended and len(asked) == 60
        cold = {e["prompt"]: e["output_ids"] for e in mine if e["op"] == "cold"}
        for answer in (e for e in mine if e["op"] == "answer"):
            request = next(
                e for e in mine if e["op"] == "request" and e["request_id"] == answer["request_id"]
            )
            assert answer["output_ids"] == cold[request["prompt"]]
        assert {e["site"] for e in mine if e["op"] == "integrity"} == {"a", "b"}
        hung = [e for e in mine if e["op"] == "unanswered"]
        assert bool(hung) == (cell == 1)
    manifest = json.loads((runs[0].folder / "manifest.json").read_text())
    assert manifest["sabotage"] == "fetch-waits-forever"


def test_a_fault_that_never_came_cannot_pass(late: Run, runs: list[Run]) -> None:
    assert late.done.returncode == 4, late.done.stdout
    assert late.summary["verdict"] == "unknown"
    assert "fault-fired:cut" in " ".join(late.summary["reasons"])
    assert "the stream ended before its moment" in _history(late.folder)
    prompts = {line for line in _history(late.folder).splitlines() if '"op":"cold"' in line}
    others = {line for line in _history(runs[0].folder).splitlines() if '"op":"cold"' in line}
    assert prompts and not {_ids(line) for line in prompts} & {_ids(line) for line in others}


def _history(folder: Path) -> str:
    return (folder / "history.jsonl").read_text(encoding="utf-8")


def _ids(line: str) -> tuple[int, ...]:
    return tuple(json.loads(line)["output_ids"])


def test_its_page_requests_and_links_tell_the_same(runs: list[Run]) -> None:
    folder = runs[0].folder
    rows = pyarrow.parquet.read_table(folder / "requests.parquet").to_pylist()
    assert [sum(row["cell"] == cell for row in rows) for cell in (0, 1)] == [60, 60]
    for row in rows:
        if row["status"] == "ok":
            spans = [value for name, value in row.items() if name in Spans.__struct_fields__]
            assert sum(spans) == row["ttft_ns"] == row["first_ns"] - row["sent_ns"]
    for cell in runs[0].summary["cells"]:
        fates = Counter(row["fate"] for row in rows if row["cell"] == cell["cell"])
        assert fates == Counter({name: n for name, n in cell["fates"]["requests"].items() if n})
    links = json.loads((folder / "links.json").read_text())["cells"]
    checks = [check for cell in links for check in cell["links"]]
    assert len(checks) == 4 and all(check["ok"] for check in checks)
    for check in checks:
        assert abs(check["rtt_measured_ns"] - check["rtt_asked_ns"]) <= 5_000
    page = (folder / "report.html").read_text()
    assert "geokv drill link-cut" in page and "synthetic content ran" in page
