"""Reference tables come out again, byte for byte: those that are quick.

``make reference-check`` compares all of them. A drill's are compared in test_shipped_drills.py.
"""

from __future__ import annotations

import pytest
from cli import Geokv, Run
from conftest import REFERENCE


@pytest.fixture(scope="module")
def full_size(geokv: Geokv, vm: None) -> Run:
    return geokv.run_scenario("full_size", timeout=270)


def same_table(name: str, run: Run) -> None:
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    here, there = (folder / "table.csv" for folder in (run.folder, REFERENCE / name))
    assert here.read_text().splitlines() == there.read_text().splitlines()


def test_the_table_of_smoke(smoke: Run, pinned: None) -> None:
    same_table("smoke", smoke)


def test_the_table_of_a_mixed_fleet(geokv: Geokv, vm: None, pinned: None) -> None:
    same_table("mixed_fleet", geokv.run_scenario("mixed_fleet", timeout=270))


def test_the_table_of_full_size(full_size: Run, pinned: None) -> None:
    same_table("full_size", full_size)


def test_full_size_keeps_the_bars_of_the_transfer(full_size: Run) -> None:
    kept = {item["name"]: item["ok"] for item in full_size.summary["expectations"]}
    for bar in ("closed_form_within", "ratio_to_bound_at_most", "overlap_within"):
        assert kept[bar] is True
