"""Whole runs: what they print, what they leave, that they repeat."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml
from cli import SMALL, Geokv, Run

CELL_KEYS = {
    "km", "rtt_asked_ms", "rtt_measured_ms", "goodput_ratio", "valid", "gain",
    "gain_change_percent", "wrong", "arms",
}  # fmt: skip
ARM_KEYS = {"n", "ttft_p50_ms", "ttft_p99_ms", "spans_ms", "bytes", "energy_j"}
SPANS = {"queue", "lookup", "fetch", "completion", "load", "prefill", "first_byte"}


def test_smoke_passes_and_prints_its_table(smoke: Run) -> None:
    assert smoke.done.returncode == 0, smoke.done.stdout + smoke.done.stderr
    assert "PASS" in smoke.done.stdout.upper()
    assert "50" in smoke.done.stdout
    assert f"run folder: {smoke.folder}" in smoke.done.stdout.replace("\n", "")


def test_run_folder_is_complete(smoke: Run) -> None:
    found = {str(path.relative_to(smoke.folder)) for path in smoke.folder.rglob("*")}
    assert found >= {
        "scenario.yaml", "manifest.json", "requests.parquet", "history.jsonl", "links.json",
        "summary.json", "table.csv", "table.md", "table.tex", "report.html", "report.md", "log.txt",
        "plots",
    }  # fmt: skip
    plots = {path.suffix for path in (smoke.folder / "plots").iterdir()}
    assert plots == {".svg", ".png"}
    for path in smoke.folder.rglob("*"):
        assert path.is_dir() or path.stat().st_size, path
    manifest = json.loads((smoke.folder / "manifest.json").read_text())
    assert manifest["clock"] == "virtual"
    assert manifest["seed"] == 1
    assert manifest["byte_scale"] == 16
    assert "geokv" in manifest["kernel"]
    assert yaml.safe_load((smoke.folder / "scenario.yaml").read_text())["name"] == "smoke"


def test_summary_has_every_key_of_its_schema(smoke: Run) -> None:
    summary = smoke.summary
    assert summary["verdict"] == "pass"
    assert [cell["km"] for cell in summary["cells"]] == [0, 50]
    for cell in summary["cells"]:
        assert cell.keys() >= CELL_KEYS
        assert cell["valid"] is True
        assert cell["wrong"] == 0
        assert cell["rtt_measured_ms"] == pytest.approx(cell["rtt_asked_ms"], rel=0.005, abs=0.005)
        assert 0.95 <= cell["goodput_ratio"] <= 1.01
        assert cell["arms"].keys() == {"recompute", "local_hit", "remote_hit"}
        for name, arm in cell["arms"].items():
            assert arm.keys() >= ARM_KEYS
            assert arm["n"] == 2
            assert arm["spans_ms"].keys() == SPANS
            assert 0 < arm["ttft_p50_ms"] <= arm["ttft_max_ms"]
            assert arm["ttft_p99_ms"] is None, "two samples carry none"
            assert arm["energy_j"] > 0
            assert (arm["bytes"] > 0) == (name == "remote_hit")
        remote = cell["arms"]["remote_hit"]
        assert remote.keys() >= {"bound_ms", "ratio_to_bound"}
        assert remote["ratio_to_bound"] == pytest.approx(
            remote["ttft_p50_ms"] / remote["bound_ms"], rel=0.01
        )
        assert remote["ratio_to_bound"] >= 1
    near, far = summary["cells"]
    assert near["gain_change_percent"] == 0
    farther_ms = (
        far["arms"]["remote_hit"]["ttft_p50_ms"] - near["arms"]["remote_hit"]["ttft_p50_ms"]
    )
    assert farther_ms >= far["rtt_asked_ms"] - near["rtt_asked_ms"]


def test_every_request_has_spans_that_add_up(smoke: Run) -> None:
    rows = pyarrow.parquet.read_table(smoke.folder / "requests.parquet").to_pylist()
    measured = [row for row in rows if not row["warmup"]]
    assert len(measured) == 2 * 3 * 2
    for row in measured:
        spans = [row[f"{name}_ns"] for name in sorted(SPANS)]
        assert min(spans) >= 0, row
        assert sum(spans) == pytest.approx(row["ttft_ns"], rel=0.01)
        assert row["status"] == "ok"
    by_arm = {row["arm"]: row["source"] for row in measured}
    assert by_arm == {"recompute": "none", "local-hit": "device", "remote-hit": "remote"}


def test_the_first_request_of_a_site_waits_for_no_library(smoke: Run) -> None:
    """What is imported with an answer costs it clock readings, 130 µs of them once."""
    rows = pyarrow.parquet.read_table(smoke.folder / "requests.parquet").to_pylist()
    for site in ("a", "b"):
        first, *others = sorted(
            (row for row in rows if row["site"] == site), key=lambda row: row["sent_ns"]
        )
        assert others and first["queue_ns"] - min(row["queue_ns"] for row in others) < 40_000


def test_history_tells_every_block_operation(smoke: Run) -> None:
    lines = (smoke.folder / "history.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["op"] for event in events} >= {"store", "publish", "lookup", "fetch", "serve"}
    stamps = [event["t_ns"] for event in events]
    assert stamps == sorted(stamps)


def test_table_prints_the_run_again_with_its_exit_code(
    geokv: Geokv, smoke: Run, failing: Run
) -> None:
    again = geokv("table", smoke.folder)
    assert again.returncode == 0
    assert again.stdout.strip() in smoke.done.stdout
    assert geokv("table", failing.folder).returncode == 1
    as_json = geokv("table", smoke.folder, "--json")
    assert json.loads(as_json.stdout) == smoke.summary


def test_same_seed_gives_the_same_table_byte_for_byte(smoke: Run, smoke_again: Run) -> None:
    for name in ("table.csv", "table.md", "requests.parquet"):
        assert (smoke.folder / name).read_bytes() == (smoke_again.folder / name).read_bytes(), name


def test_other_seed_is_another_run_that_passes(smoke: Run, other_seed: Run) -> None:
    assert other_seed.done.returncode == 0, other_seed.done.stdout
    assert (other_seed.folder / "table.csv").read_bytes() != (
        smoke.folder / "table.csv"
    ).read_bytes()
    with (other_seed.folder / "table.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) >= 2


def test_broken_expectation_fails_by_name(failing: Run) -> None:
    assert failing.done.returncode == 1, failing.done.stdout + failing.done.stderr
    assert failing.summary["verdict"] == "fail"
    assert "gain_change_percent_at_most" in failing.done.stdout
    assert failing.summary["cells"][1]["gain_change_percent"] > 8
    assert failing.summary["cells"][1]["wrong"] == 0


def test_narrowed_sweep_cannot_pass(geokv: Geokv, vm: None) -> None:
    """What the narrowing leaves untested is said, and is not a pass."""
    run = geokv.run_scenario(
        "distance_ttft",
        *("--set", "links.a-b.km=10", "--set", "workload.prefix_tokens=256"),
        *("--set", "workload.requests=1", "--set", "workload.warmup=0"),
        *("--set", "deployment.byte_scale=16"),
        *("--set", "deployment.device_bytes=4GiB", "--set", "deployment.dram_bytes=4GiB"),
        *("--set", "vm.memory=3GiB"),
    )
    assert run.done.returncode == 4, run.done.stdout + run.done.stderr
    assert run.summary["verdict"] == "unknown"
    assert "ratio_to_bound_at_most" in run.done.stdout


def test_wall_clock_runs_small(geokv: Geokv, vm: None) -> None:
    run = geokv.run_scenario(
        "smoke",
        *SMALL,
        *("--clock", "wall"),
        *("--set", "links.a-b.km=50"),
        *("--set", "links.a-b.rate=1G"),
        *("--set", "deployment.byte_scale=64"),
        *("--json",),
    )
    printed = json.loads(run.done.stdout)
    assert printed["verdict"] in {"pass", "invalid"}, run.done.stdout
    assert run.done.returncode == {"pass": 0, "invalid": 3}[printed["verdict"]]
    assert printed["run"] == str(run.folder)
    assert run.summary["cells"][0]["wrong"] == 0
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert manifest["clock"] == "wall"
    assert "real clock" in manifest["kernel"]
    # Real time has real work in it, and that was measured.
    energy = run.summary["energy"]
    assert energy["grade"] in {"cpu", "nvml"}
    assert energy["measured"]["of"] == "geokv-tiny"
    cells = energy["measured"]["cells"]
    # One cell, and one that is void has no joules.
    assert len(cells) == (printed["verdict"] == "pass")
    for arm in (arm for cell in cells for arm in cell["arms"].values()):
        assert arm["n"] >= 1 and arm["cpu_s"] > 0 and arm["energy_j"] == arm["cpu_j"] > 0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with a byte-level tokenizer, as `transformers` saves it."""
    import tokenizers
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("tiny-llama")
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        initializer_range=0.3, bos_token_id=256, eos_token_id=257,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(["light in glass " * 20], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_model_folder_runs_end_to_end(geokv: Geokv, vm: None, checkpoint: Path) -> None:
    run = geokv.run_scenario("smoke", *SMALL, "--set", f"deployment.model={checkpoint}")
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    assert run.summary["verdict"] == "pass"
    rows = pyarrow.parquet.read_table(run.folder / "requests.parquet").to_pylist()
    answers = {tuple(row["output_ids"]) for row in rows if not row["warmup"]}
    assert len(answers) > 1, "a model that always says the same proves nothing"
    assert max(max(answer) for answer in answers) < 300
