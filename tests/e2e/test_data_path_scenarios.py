"""The scenarios about the data path, smaller than they are shipped: they pass, and could fail."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli import Geokv, Run
from conftest import SCENARIOS

from geokv.measure import summarise
from geokv.scenario import load_scenario

Scenario = dict[str, Any]


def shipped(name: str) -> Scenario:
    data: Scenario = yaml.safe_load((SCENARIOS / f"{name}.yaml").read_text())
    data["name"] = f"small_{name}"
    data["vm"] = {"memory": "3GiB", "jobs": 1}
    return data


def granularity() -> Scenario:
    data = shipped("granularity")
    data["workload"]["prefix_tokens"] = 1024
    del data["sweep"][0]["variants"]["layered"]  # full size has it (test_reference.py)
    del data["expect"]["overlap_within"]
    data["sweep"][1]["values"] = [16, 256]
    data["sweep"][2]["values"] = [0, 100]
    data["expect"]["changes"] = data["expect"]["changes"][:2]
    return data


def break_even() -> Scenario:
    data = shipped("break_even")
    data["sweep"][0]["values"] = [100]
    data["sweep"][1]["values"] = [1024, 8192]
    data["sweep"][2]["values"] = ["10G", "100G"]
    data["expect"]["changes"] = []
    return data


def tcp() -> Scenario:
    data = shipped("tcp")
    data["deployment"]["byte_scale"] = 4
    data["workload"]["requests"] = 1
    data["sweep"][0]["values"] = ["cubic"]
    data["sweep"][1]["values"] = [1]
    data["sweep"][2]["values"] = [0, 1e-2]
    data["expect"]["changes"] = [
        {"of": "fetch", "along": "connections", "start": "warm", "end": kind, "at_least": 1.05,
         "where": {"links.a-b.loss": 0}}
        for kind in ("cold", "idle")
    ] + [
        {"of": "goodput", "along": "links.a-b.loss", "start": 0, "end": 1e-2, "at_most": 0.5,
         "where": {"connections": "warm"}}
    ]  # fmt: skip
    return data


def tiers() -> Scenario:
    data = shipped("tiers")
    data["workload"].update(prefixes=6, requests=12, warmup=6)
    variants = data["sweep"][0]["variants"]
    data["sweep"][0]["variants"] = {name: variants[name] for name in [*variants][::4]}
    # The largest and the smallest, without the disk that comes after them.
    data["expect"]["tiers_used"] = ["device", "dram", "remote"]
    return data


SMALL: tuple[Callable[[], Scenario], ...] = (granularity, break_even, tcp, tiers)


@pytest.fixture(scope="module")
def runs(geokv: Geokv, vm: None) -> dict[str, Run]:
    """All of them, two at a time."""
    files: list[Path] = []
    for make in SMALL:
        files.append(geokv.folder / f"small_{make.__name__}.yaml")
        files[-1].write_text(yaml.safe_dump(make(), sort_keys=False))
    done: list[Run] = []
    for start in range(0, len(files), 2):
        done += geokv.run_scenarios(*([file] for file in files[start : start + 2]))
    return {make.__name__: run for make, run in zip(SMALL, done, strict=True)}


@pytest.mark.parametrize("name", ["granularity", "break_even", "tcp", "tiers"])
def test_it_passes_and_draws_its_figures(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    assert all(item["ok"] for item in run.summary["expectations"])
    for figure in run.summary["figures"]:
        for kind in ("svg", "png"):
            assert (run.folder / "plots" / f"{figure['name']}.{kind}").stat().st_size > 1000
        assert figure["title"] in run.done.stdout
        assert figure["title"] in (run.folder / "table.md").read_text()


def test_the_same_records_break_a_promise_that_cannot_hold(
    runs: dict[str, Run], tmp_path: Path
) -> None:
    """Distance makes no page faster."""
    copy = tmp_path / "run"
    shutil.copytree(runs["granularity"].folder, copy)
    data = yaml.safe_load((copy / "scenario.yaml").read_text())
    data["expect"]["changes"] = [
        {"of": "goodput", "along": "links.a-b.km", "start": 0, "end": 100, "at_least": 1.0}
    ]
    promised = load_scenario(data)
    (copy / "scenario.yaml").write_text(promised.to_yaml())
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["scenario_hash"] = promised.hash
    (copy / "manifest.json").write_text(json.dumps(manifest))
    summary = summarise(copy)
    assert (summary["verdict"], summary["exit_code"]) == ("fail", 1)
    (reason,) = summary["reasons"]
    assert reason.startswith("changes.0: goodput of a remote hit from links.a-b.km 0 to 100")


def test_one_at_a_time_pays_a_round_trip_for_every_page(runs: dict[str, Run]) -> None:
    with (runs["granularity"].folder / "table.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    serial = [row for row in rows if row["transfer"] == "serial" and row["km"] == "100.0"]
    for row in serial:
        chunks = 1024 // int(row["deployment.chunk_tokens"])
        assert int(row["remote_hit_chunks"]) == chunks
        assert float(row["remote_hit_round_trips"]) == pytest.approx(chunks, rel=0.1, abs=0.2)


def test_longer_prefixes_pay_at_lower_rates(runs: dict[str, Run]) -> None:
    short, long = runs["break_even"].summary["crossovers"]
    assert short["settings"]["workload.prefix_tokens"] == 1024
    assert long["measured_gbps"] < short["measured_gbps"]
    assert short["off_percent"] == pytest.approx(0, abs=10)


def test_what_falls_out_of_small_tiers_is_fetched_or_computed(runs: dict[str, Run]) -> None:
    large, small = runs["tiers"].summary["cells"]
    for cell in (large, small):
        for arm in ("local_hit", "remote_hit"):
            hits = cell["arms"][arm]["hits"]
            assert sum(one["requests"] for one in hits.values()) == 12
            assert sum(one["share"] for one in hits.values()) == pytest.approx(1, abs=1e-3)
        assert cell["arms"]["local_hit"]["hits"]["remote"]["share"] == 0
        assert cell["arms"]["remote_hit"]["hits"]["computed"]["share"] < 0.07
    kept = [cell["arms"]["remote_hit"]["hits"]["device"]["share"] for cell in (large, small)]
    assert kept[0] > kept[1]
    lost = [cell["arms"]["local_hit"]["hits"]["computed"]["share"] for cell in (large, small)]
    assert lost[0] < lost[1]
