"""``geokv profile``: list, show and check, as a user types them."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest
from cli import Geokv

from geokv.paths import CHECKOUT

TRACES = Path(os.environ.get("GEOKV_TRACES") or CHECKOUT.parent / "shared" / "traces")
needs_traces = pytest.mark.skipif(
    not (TRACES / "gpu_profiles").is_dir(),
    reason="no GPU measurements: set GEOKV_TRACES to a folder with gpu_profiles/",
)
H100 = "llama-3.1-8b@h100-sxm"


@pytest.fixture
def without_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEOKV_TRACES", raising=False)


@pytest.mark.parametrize("name", ["list", "show", "check"])
def test_help_shows_examples(geokv: Geokv, name: str) -> None:
    done = geokv("profile", name, "--help")
    assert done.returncode == 0
    assert f"geokv profile {name}" in done.stdout.split("Examples:", 1)[1]


def test_list_names_every_profile_or_those_of_one_device(geokv: Geokv) -> None:
    everything = geokv("profile", "list")
    assert everything.returncode == 0
    for name in (H100, "llama-3.1-70b-tp8@a100-80g", "qwen2.5-32b@h200-sxm", "llama-2-7b@l4"):
        assert name in everything.stdout
    one = geokv("profile", "list", "l40s").stdout
    assert "mistral-7b@l40s" in one and "h100" not in one
    wrong = geokv("profile", "list", "v100")
    assert wrong.returncode == 2
    assert "no device 'v100'" in wrong.stderr and "a100-80g" in wrong.stderr


def test_show_prints_times_constants_error_and_sources(geokv: Geokv) -> None:
    done = geokv("profile", "show", H100)
    assert done.returncode == 0
    for said in (
        "fitted", "131,072 bytes", "16.06 GB", "14 µs per operation", "idle 70",
        "8,320 new on 0 cached", "128 new on 8,192 cached", "32 × 1,024 tokens",
        "layers, ms", "decode attention", "whole cold pass", "LLMServingSim @5daddb2",
    ):  # fmt: skip
        assert said in done.stdout, said
    roofline = geokv("profile", "show", "qwen2.5-7b@h200-sxm").stdout
    assert "roofline" in roofline and "Error of its efficiencies where measured" in roofline
    assert "4.8 TB/s" in roofline and "% of the peak FLOP/s" in roofline


def test_show_refuses_an_unknown_name_with_the_known_ones(geokv: Geokv) -> None:
    done = geokv("profile", "show", "gpt-5@abacus")
    assert done.returncode == 4
    assert "unknown GPU profile 'gpt-5@abacus'" in done.stderr
    assert H100 in done.stderr


def test_check_without_measurements_says_where_to_get_them(
    geokv: Geokv, without_traces: None, tmp_path: Path
) -> None:
    done = geokv("profile", "check")
    assert done.returncode == 2
    assert "no folder of measured files" in done.stderr and "GEOKV_TRACES" in done.stderr
    gone = geokv("profile", "check", tmp_path / "gone")
    assert gone.returncode == 2 and "no such folder" in gone.stderr
    empty = geokv("profile", "check", tmp_path)
    assert empty.returncode == 2 and "cannot be read" in empty.stderr


@needs_traces
def test_check_passes_its_bar_and_draws(geokv: Geokv, tmp_path: Path) -> None:
    drawn = tmp_path / "profiles.svg"
    done = geokv("profile", "check", TRACES, "--plot", drawn)
    assert done.returncode == 0, done.stdout
    for said in ("h100-sxm", "a100-80g", "rtxpro6000", "Splitwise", "held out", "Left out"):
        assert said in done.stdout
    assert "all 42 judged lines within the bar" in done.stdout
    assert drawn.read_text().startswith("<?xml")
    nowhere = geokv("profile", "check", TRACES, "--plot", tmp_path / "no" / "such.svg")
    assert nowhere.returncode == 2 and "no such folder" in nowhere.stderr


@needs_traces
def test_check_fails_where_measurements_are_not_what_is_predicted(
    geokv: Geokv, tmp_path: Path
) -> None:
    slower = tmp_path / "gpu_profiles"
    shutil.copytree(TRACES / "gpu_profiles", slower)
    table = slower / "splitwise" / "perf_model.csv"
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["hardware"] == "h100-80gb" and row["tensor_parallel"] == "4":
            row["prompt_time"] = str(1.5 * float(row["prompt_time"]))
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    done = geokv("profile", "check", tmp_path)
    assert done.returncode == 1
    assert "fail: 1 of 42 judged lines" in done.stdout
    missed = [line for line in done.stdout.splitlines() if "missed" in line]
    assert len(missed) == 1 and "llama-2-70b on 4 GPUs" in missed[0] and "prefill" in missed[0]
