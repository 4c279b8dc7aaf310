"""The example scripts in scenarios/, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geokv import load_run
from geokv.paths import CHECKOUT

SCRIPTS = sorted((CHECKOUT / "scenarios").glob("*.py"))


def run_script(name: str, folder: Path) -> tuple[str, Path]:
    """Its output, and the run folder it left."""
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scenarios" / name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "MPLBACKEND": "svg"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (folder / "results").glob("*/*")
    return done.stdout, run


def test_scripts_are_short_and_all_tested() -> None:
    assert [path.name for path in SCRIPTS] == ["drill.py", "policy.py", "sweep.py"]
    assert all(len(path.read_text().splitlines()) <= 60 for path in SCRIPTS)


def test_a_sweep(tmp_path: Path, vm: None) -> None:
    said, folder = run_script("sweep.py", tmp_path)
    run = load_run(folder)
    assert said.startswith("pass")
    assert len(run.table) == 6
    assert "own_plot" in run.plots
    gain = run.table.set_index(["links.a-b.rate", "km"])["gain"].unstack(0)
    assert (gain["100G"] > gain["10G"]).all()
    assert gain["100G"].is_monotonic_decreasing


@pytest.mark.timeout(300)
def test_a_drill_with_a_fault_of_ones_own(tmp_path: Path, vm: None) -> None:
    said, folder = run_script("drill.py", tmp_path)
    run = load_run(folder)
    assert run.verdict == "pass", said
    fault = run.summary["cells"][0]["faults"][0]
    assert fault["name"] == "trench"
    assert 495 <= fault["healed_ms"] - fault["took_effect_ms"] <= 510
    assert run.expectations.set_index("name")["ok"]["fault-fired:trench"]
    # With one way left, b would have fetched all the time; with both cut it had to compute.
    assert (run.requests.query("cell == 0")["fate"] == "recomputed").sum() >= 5
    assert "Digger" in (folder / "sheet.en.md").read_text()
    (code,) = json.loads((folder / "manifest.json").read_text())["code"]
    assert (code["name"], code["file"]) == ("drill:Digger", "drill.py")


def test_a_policy_of_ones_own(tmp_path: Path, vm: None) -> None:
    _, folder = run_script("policy.py", tmp_path)
    run = load_run(folder)
    asked = run.requests.query("arm == 'local-hit' and not warmup")
    cached = asked.groupby("cell")["cached_tokens"].sum()
    # A loop longer than the tier: what LRU keeps is never what comes next.
    assert cached[0] == 0
    assert cached[1] > 0.3 * asked.query("cell == 1")["prompt_tokens"].sum()
    table = run.table.set_index("cache.tiers.dram.policy")["local_hit_ttft_p50_ms"]
    assert table["policy:NewestFirst"] < table["lru"] / 2
    (code,) = json.loads((folder / "manifest.json").read_text())["code"]
    assert code["name"] == "policy:NewestFirst"
