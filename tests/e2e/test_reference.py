"""Reference tables of the scenarios come out again, digit for digit.

That of every drill is compared in test_shipped_drills.py, and that of ``real_text`` in
test_real_text.py. ``make reference-check`` compares all of them, and their figures, too.
"""

from __future__ import annotations

import pytest
from cli import Geokv, Run
from conftest import REFERENCE, table_of

ON_A_BUSY_MACHINE_S = 600.0
ELSEWHERE = ("real_text",)
TAKEN_FOR_MORE = ("full_size", "smoke")
"""By tests below, that ask more of the same run."""
AGAIN = sorted(
    {path.name for path in REFERENCE.iterdir() if (path / "table.csv").exists()}
    - {*ELSEWHERE, *TAKEN_FOR_MORE}
)
FAILS_ON_PURPOSE = "distance_pagewise"
UNSTEADY = {"tcp": ("links.a-b.congestion", "bbr")}
"""Rows with this value in this column are left out. BBR paces by its own clock, and on a line with
losses a reading of it that one place of the checkout costs, and another does not, is enough for
other packets to be lost: three places gave three outcomes."""

pytestmark = pytest.mark.timeout(2 * ON_A_BUSY_MACHINE_S)


@pytest.fixture(scope="module")
def full_size(geokv: Geokv, vm: None) -> Run:
    return geokv.run_scenario("full_size", timeout=ON_A_BUSY_MACHINE_S)


def same_table(name: str, run: Run) -> None:
    status = 1 if name == FAILS_ON_PURPOSE else 0
    assert run.done.returncode == status, run.done.stdout + run.done.stderr
    here, there = (steady(name, table_of(folder)) for folder in (run.folder, REFERENCE / name))
    assert here == there


def steady(name: str, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    column, value = UNSTEADY.get(name, ("", ""))
    return [row for row in rows if not column or row[column] != value]


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
