"""A reference table comes out again: full size, which is quick, and holds the transfer's bars."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from cli import Geokv

from geokv.paths import CHECKOUT

COUNTS = ("remote_hit_n", "remote_hit_bytes", "remote_hit_chunks", "compared", "wrong")
TIMES = ("recompute_ttft_p50_ms", "local_hit_ttft_p50_ms", "remote_hit_ttft_p50_ms",
         "remote_hit_fetch_ms", "remote_hit_bound_ms")  # fmt: skip
NEAR = 2e-3
"""Some µs are another set of Python packages; ``make reference-check`` takes no difference."""


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_full_size_keeps_its_bars_and_its_table(geokv: Geokv, vm: None) -> None:
    run = geokv.run_scenario("full_size", timeout=270)
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    kept = {item["name"]: item["ok"] for item in run.summary["expectations"]}
    for bar in ("closed_form_within", "ratio_to_bound_at_most", "overlap_within"):
        assert kept[bar] is True
    reference, here = rows(CHECKOUT / "results" / "reference" / "full_size"), rows(run.folder)
    assert len(here) == len(reference) == 4
    for expected, seen in zip(reference, here, strict=True):
        assert [seen[title] for title in COUNTS] == [expected[title] for title in COUNTS]
        for title in TIMES:
            assert float(seen[title]) == pytest.approx(float(expected[title]), rel=NEAR), title
