"""What sites do for each other, asked for in a scenario and seen in a run's records."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli import Geokv, Run
from conftest import SCENARIOS

from geokv.cache.substrate.tcp.throttle import BURST_BYTES

Scenario = dict[str, Any]
CAP_BPS, SCALE, RTT_NS = 10e9, 16, 500_000


def small(name: str, **more: Any) -> Scenario:
    """The smoke scenario with one cell at 50 km."""
    data: Scenario = yaml.safe_load((SCENARIOS / "smoke.yaml").read_text())
    data.update(name=name, sweep=[])
    data["topology"] = {
        "name": "small",
        "sites": {"a": {}, "b": {}},
        "links": {"a-b": {"km": 50}},
    }
    data["vm"] = {"memory": "3GiB", "jobs": 1}
    for path, value in more.items():
        here = data
        *parents, last = path.split("__")
        for part in parents:
            here = here.setdefault(part, {})
        here[last] = value
    return data


MIXED = {"b": {"block_tokens": 32, "chunk_tokens": 64, "shards": 2}}
MADE = {
    "capped": small("capped", cache__substrate__link_caps={"a-b": "10G"}),
    "mixed": small("mixed", deployment__sites=MIXED, cache__mixed="convert"),
    "typed": small(
        "typed",
        deployment__sites={"a": {"dtype": "bfloat16"}, "b": {"block_tokens": 32}},
        cache__mixed="convert",
        cache__exact=False,
        expect={"remote_used": True},
    ),
    "copied": small(
        "copied",
        topology__sites={"a": {}, "b": {}, "c": {}},
        topology__links={"a-b": {"km": 50}, "b-c": {"km": 1}, "a-c": {"km": 50}},
        cache__replication={"to": ["c"]},
    ),
}
REFUSED = small("refused", deployment__sites=MIXED)


def written(geokv: Geokv, data: Scenario) -> Path:
    path = geokv.folder / f"{data['name']}.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def runs(geokv: Geokv, vm: None) -> dict[str, Run]:
    """All of them; what can be judged of a run as such holds."""
    files = [[written(geokv, data)] for data in MADE.values()]
    done = [*geokv.run_scenarios(*files[:2]), *geokv.run_scenarios(*files[2:])]
    for run in done:
        assert run.done.returncode == 0, run.done.stdout + run.done.stderr
        assert run.summary["verdict"] == "pass"
    return dict(zip(MADE, done, strict=True))


def rows(run: Run, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / name).read_text().splitlines()]


def test_a_fetch_takes_exactly_as_long_as_its_cap_says(runs: dict[str, Run]) -> None:
    """What is beyond the burst goes at the cap; the last part still has to cross the line."""
    found = [
        row for row in rows(runs["capped"], "records/requests.jsonl") if row["arm"] == "remote-hit"
    ]
    assert len(found) == 3
    for row in found:
        capped_ns = (row["wire_bytes"] - BURST_BYTES) * 8e9 / (CAP_BPS / SCALE)
        last_ns = BURST_BYTES * 8e9 / (100e9 / SCALE)
        assert row["spans"]["fetch_ns"] == pytest.approx(capped_ns + RTT_NS + last_ns, abs=20_000)


def test_what_is_converted_is_what_the_asker_would_have_kept(runs: dict[str, Run]) -> None:
    """Byte for byte: the asker computed the same chunks once, for its local hits."""
    kept: dict[tuple[str, str], set[tuple[str, ...]]] = defaultdict(set)
    for event in rows(runs["mixed"], "history.jsonl"):
        if event["site"] == "b" and event["op"] in ("store", "convert"):
            kept[event["key"], event["op"]].add(tuple(event["checksums"]))
            assert not event.get("lossy")
    keys = [key for key, op in kept if op == "convert"]
    assert len(keys) == 1024 // 64
    for key in keys:
        assert kept[key, "convert"] == kept[key, "store"]
        assert len(kept[key, "convert"]) == 1
    assert "site b has block_tokens 32, chunk_tokens 64, shards 2" in runs["mixed"].summary["notes"]


def test_numbers_of_another_type_are_converted(runs: dict[str, Run]) -> None:
    """Every bfloat16 value is a float32 value: none of them is marked as having lost something."""
    events = [event for event in rows(runs["typed"], "history.jsonl") if event["op"] == "convert"]
    assert len({event["key"] for event in events}) == 4
    assert not any(event["lossy"] for event in events)
    assert "site a has dtype bfloat16" in runs["typed"].summary["notes"]


def test_a_site_that_lies_otherwise_is_refused_with_both_values(geokv: Geokv, vm: None) -> None:
    run = geokv.run_scenario(written(geokv, REFUSED))
    assert run.done.returncode == 4
    for name, mine, theirs in (
        ("block_tokens", 32, 16),
        ("chunk_tokens", 64, 256),
        ("shards", 2, 1),
    ):
        pairs = (f"{name}: {mine} here, {theirs} there", f"{name}: {theirs} here, {mine} there")
        assert any(pair in run.done.stderr for pair in pairs), run.done.stderr


def test_copies_are_made_in_the_background_and_counted(runs: dict[str, Run]) -> None:
    events = rows(runs["copied"], "history.jsonl")
    made = [event for event in events if event["op"] == "replicate"]
    ends = Counter((event["site"], event["target"], event["cause"]) for event in made)
    # The prefix is 1,024 tokens in chunks of 256. The asker computed it too, for its local
    # hits, and c had it by then.
    assert ends == {("a", "c", ""): 4, ("b", "c", "present"): 4}
    arrived = [event["key"] for event in events if event["op"] == "pushed" and not event["cause"]]
    assert sorted(arrived) == sorted(event["key"] for event in made if event["site"] == "a")
    stats = json.loads(next((runs["copied"].folder / "records").glob("stats-*.json")).read_text())
    assert stats["a"]["cache"]["replicated"] == {"ok": 4}
    assert stats["b"]["cache"]["replicated"] == {"present": 4}
    assert stats["c"]["cache"]["pushed"] == {"ok": 4, "present": 4}
