"""A reference table comes out again: full size, which is quick, and holds the transfer's bars."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from cli import Geokv

from geokv.paths import CHECKOUT


def rows(folder: Path) -> list[list[str]]:
    with (folder / "table.csv").open(encoding="utf-8") as lines:
        return list(csv.reader(lines))


def same(one: str, other: str) -> bool:
    """Equal, or as near as two sets of Python packages are: some µs."""
    if one == other:
        return True
    try:
        return float(one) == pytest.approx(float(other), rel=1e-3, abs=0.02)
    except ValueError:
        return False


def test_full_size_keeps_its_bars_and_its_table(geokv: Geokv, vm: None) -> None:
    run = geokv.run_scenario("full_size", timeout=270)
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    reference, here = rows(CHECKOUT / "results" / "reference" / "full_size"), rows(run.folder)
    assert here[0] == reference[0]
    assert len(here) == len(reference) == 5
    for expected, seen in zip(reference[1:], here[1:], strict=True):
        titles = zip(here[0], expected, seen, strict=True)
        assert [title for title, one, other in titles if not same(one, other)] == []
