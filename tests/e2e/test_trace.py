"""A run leaves a trace, and replaying the trace hits as the run did, to the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli import SMALL, Geokv, Run

from geokv.paths import CHECKOUT

ROAMING: dict[str, Any] = {
    "name": "roaming",
    "title": "Two sites that both ask, with caches that work",
    "question": "Is a trace of this the same traffic?",
    "topology": "pair",
    "seed": 5,
    "deployment": {
        "content": "synthetic",
        "byte_scale": 64,
        "device_bytes": "640MiB",
        "dram_bytes": "512MiB",
    },
    "cache": {"directory": {"kind": "central", "site": "a"}, "substrate": {"deadline": "500ms"}},
    "workload": {
        "kind": "stream",
        "askers": {"a": 1, "b": 2},
        "providers": ["a"],
        "tenants": 2,
        "prefixes": 4,
        "prefix_tokens": 1024,
        "requests": 40,
        "arrivals": "poisson",
        "rate": 20,
        "cold": "keep",
        "deadline": "2s",
        "quiesce": "500ms",
    },
    "vm": {"memory": "3GiB", "jobs": 1, "watchdog": "60s"},
}
"""Tiers hold fewer prefixes than there are, so that chunks are evicted and come back."""


@pytest.fixture(scope="module")
def measured(geokv: Geokv, vm: None) -> Run:
    """Every arm at 50 km."""
    return geokv.run_scenario("smoke", *SMALL, "--set", "links.a-b.km=50")


@pytest.fixture(scope="module")
def stream(geokv: Geokv, vm: None) -> Run:
    path = geokv.folder / "roaming.yaml"
    path.write_text(yaml.safe_dump(ROAMING))
    return geokv.run_scenario(path)


def hits(run: Run, cell: int = 0) -> dict[str, Any]:
    row: dict[str, Any] = run.summary["gaps"]["mg7"]["cells"][cell]
    return {key: row[key] for key in ("requests", "answered", "tokens", "remote_tokens_from")}


def replayed(geokv: Geokv, run: Run) -> Run:
    out = run.folder.with_name(run.folder.name + "-replay")
    return Run(geokv("replay", run.folder, "--out", out), out)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]


def test_a_measurement_run_is_replayed_arm_by_arm(geokv: Geokv, measured: Run) -> None:
    again = replayed(geokv, measured)
    assert again.done.returncode == 0, again.done.stdout
    found = hits(measured)
    assert hits(again) == found
    # One question of each arm: computed whole, found on the device, brought from the other site.
    tokens = found["tokens"]["b"]
    assert found["requests"] == 3 and tokens["device"] == tokens["remote"] == 512
    assert found["remote_tokens_from"] == {"b": {"a": 512}}
    assert "every tier and site gave as in the run" in again.done.stdout


def test_a_stream_over_tiers_that_are_too_small_is_replayed(geokv: Geokv, stream: Run) -> None:
    assert stream.done.returncode == 0, stream.done.stdout
    found = hits(stream)
    again = replayed(geokv, stream)
    assert again.done.returncode == 0, again.done.stdout
    assert hits(again) == found
    assert found["requests"] == 40
    for tier in ("device", "dram", "remote", "computed"):
        assert sum(site[tier] for site in found["tokens"].values()), tier
    evicted = sum(row["evicted"] for row in stream.summary["gaps"]["mg4"]["cells"][0]["residency"])
    assert evicted, "nothing had to make room"


def test_a_replay_leaves_the_same_trace(geokv: Geokv, stream: Run) -> None:
    """But for request names: prompts, lengths, order, and who asks where and when."""
    told = ("input_length", "output_length", "hash_ids", "site", "tenant", "group", "category")
    then, now = lines(stream.folder), lines(stream.folder.with_name(stream.folder.name + "-replay"))
    assert [[line.get(key) for key in told] for line in now] == [
        [line.get(key) for key in told] for line in then
    ]
    begin = [next(one["due_ns"] for one in run if one["group"] == "all") for run in (then, now)]
    dues = [
        [one["due_ns"] - start for one in run if one["group"] == "all"]
        for run, start in zip((then, now), begin, strict=True)
    ]
    assert dues[0] == dues[1]


def test_the_shipped_trace_is_found_where_its_users_left_it(geokv: Geokv, vm: None) -> None:
    run = geokv.run_scenario("trace", "--set", "workload.take=30")
    assert run.done.returncode == 0, run.done.stdout
    row = run.summary["gaps"]["mg7"]["cells"][0]
    assert row["requests"] == row["answered"] == 30
    assert set(row["tokens"]) == {"a", "b"}
    assert row["remote_tokens_from"], "nobody had moved"
    categories = {one["category"] for one in run.summary["gaps"]["mg4"]["groups"][0]["by"]}
    assert categories == {"chat", "document"}
    assert run.summary["gaps"]["mg5"]["groups"][0]["from_last_turn"]["slack_ms"]["n"] > 0


def test_what_cannot_be_replayed_is_said(geokv: Geokv, measured: Run) -> None:
    none = geokv("replay", CHECKOUT)
    assert none.returncode and "summary.json: cannot be read" in none.stderr
    beyond = geokv("replay", measured.folder, "--cell", "7")
    assert beyond.returncode == 2 and "no cell 7" in beyond.stderr
