"""The other commands: help, doctor, check, kernel, clean."""

from __future__ import annotations

import json

import pytest
from cli import Geokv

COMMANDS = [
    "doctor", "run", "table", "check", "clean", "kernel build", "kernel path", "kernel shell",
]  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_examples(geokv: Geokv, name: str) -> None:
    done = geokv(*name.split(), "--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    after = done.stdout.split("Examples:", 1)[1]
    assert "geokv " + name in after


def test_help_lists_the_commands_and_where_to_begin(geokv: Geokv) -> None:
    done = geokv("--help")
    assert all(name.split()[0] in done.stdout for name in COMMANDS)
    assert "geokv doctor" in done.stdout
    assert geokv().returncode == 2


def test_doctor_says_runs_are_possible(geokv: Geokv, vm: None) -> None:
    done = geokv("doctor")
    assert done.returncode == 0, done.stdout
    assert "runs are possible" in done.stdout
    assert "guest kernel" in done.stdout


def test_doctor_json(geokv: Geokv, vm: None) -> None:
    done = geokv("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert done.returncode == 0
    names = {one["name"] for one in found["findings"]}
    assert {"processor", "memory", "mappings", "tools", "torch", "guest kernel"} <= names
    assert "virtual clock" in found["places"]["virtual"]


def test_doctor_without_a_kernel_says_what_to_do(
    geokv: Geokv, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = geokv("doctor")
    assert done.returncode == 4
    assert "geokv kernel build" in done.stdout or "apt-get install" in done.stdout
    path = geokv("kernel", "path")
    assert path.returncode == 4
    assert "geokv kernel build" in path.stderr
    assert path.stdout == ""


def test_kernel_path_is_a_kernel(geokv: Geokv, vm: None) -> None:
    import subprocess

    path = geokv("kernel", "path").stdout.strip()
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    assert said.stdout.strip().endswith("geokv")
    assert geokv("kernel", "build").stdout.strip() == path, "built already, done at once"


def test_check_pair_agrees_with_its_plan(geokv: Geokv, vm: None) -> None:
    done = geokv("check", "pair", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = [json.loads(line) for line in done.stdout.splitlines()]
    assert row["link"] == "a-b"
    assert row["rtt_measured_ns"] == pytest.approx(row["rtt_asked_ns"], rel=0.005, abs=5000)
    ping = row["second_opinion"]["ping"]["rtt_mean_ns"]
    assert ping == pytest.approx(row["rtt_asked_ns"], rel=0.02, abs=20_000)
    for way in ("forward", "backward"):
        ours = row[f"goodput_{way}_bps"]
        theirs = row["second_opinion"][way]["goodput_bps"]
        assert ours >= 0.95 * row["goodput_asked_bps"]
        assert theirs == pytest.approx(ours, rel=0.1)


def test_check_prints_asked_and_measured_with_loss(geokv: Geokv, vm: None) -> None:
    done = geokv("check", "pair", "--set", "links.a-b.loss=0.01", "--set", "links.a-b.rate=1G")
    assert done.returncode in (0, 3)
    assert "a-b" in done.stdout
    assert "1.00% /" in done.stdout


def test_check_that_the_machine_cannot_keep_is_invalid(geokv: Geokv, vm: None) -> None:
    """A real clock cannot carry 100 Gb/s through a VM on one processor."""
    done = geokv("check", "pair", "--clock", "wall", "--byte-scale", "1")
    if "real clock" in done.stdout and "embedded VM" not in done.stdout:
        pytest.skip("this host runs wall clock natively and may well carry 100 Gb/s")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "✗" in done.stdout
    assert "goodput" in done.stdout


def test_clean_with_nothing_to_do(
    geokv: Geokv, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = geokv("clean")
    assert (done.returncode, done.stdout) == (0, "nothing to remove\n")
