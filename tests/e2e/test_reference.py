"""Reference tables come out again, byte for byte: those that are quick.

``make reference-check`` compares all of them, with their figures; that of every drill is compared
in test_shipped_drills.py. Left to it are the sweeps that take a minute or more: ``break_even``,
``codecs``, ``congestion``, ``distance_pagewise``, ``failover``, ``granularity``, ``real_text``,
``tcp`` and ``tiers``.
"""

from __future__ import annotations

import pytest
from cli import Geokv, Run
from conftest import REFERENCE

ON_A_BUSY_MACHINE_S = 600.0
AGAIN = ("distance_ttft", "mixed_fleet", "power", "trace")

pytestmark = pytest.mark.timeout(2 * ON_A_BUSY_MACHINE_S)


@pytest.fixture(scope="module")
def full_size(geokv: Geokv, vm: None) -> Run:
    return geokv.run_scenario("full_size", timeout=ON_A_BUSY_MACHINE_S)


def same_table(name: str, run: Run) -> None:
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    here, there = (folder / "table.csv" for folder in (run.folder, REFERENCE / name))
    assert here.read_text().splitlines() == there.read_text().splitlines()


def test_the_table_of_smoke(smoke: Run, pinned: None) -> None:
    same_table("smoke", smoke)


@pytest.mark.parametrize("name", AGAIN)
def test_the_table_of_a_scenario(geokv: Geokv, vm: None, pinned: None, name: str) -> None:
    same_table(name, geokv.run_scenario(name, timeout=ON_A_BUSY_MACHINE_S))


def test_the_table_of_full_size(full_size: Run, pinned: None) -> None:
    same_table("full_size", full_size)


def test_full_size_keeps_the_bars_of_the_transfer(full_size: Run) -> None:
    kept = {item["name"]: item["ok"] for item in full_size.summary["expectations"]}
    for bar in ("closed_form_within", "ratio_to_bound_at_most", "overlap_within"):
        assert kept[bar] is True
