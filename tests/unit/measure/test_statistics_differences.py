"""What is said to differ and what is not, from whole hand-written runs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from handwritten import MS, SCENARIO, Run
from scipy import stats

from geokv.measure import summarise
from geokv.measure.statistics.differences import paired_p
from geokv.measure.statistics.many import adjusted
from geokv.measure.statistics.student import of_difference, of_mean


def of_requests(requests: int) -> Run:
    workload = {**SCENARIO["workload"], "requests": requests}
    return Run({**SCENARIO, "workload": workload})


def pair(summary: dict[str, Any], *arms: str, cells: list[int]) -> dict[str, Any]:
    (one,) = [
        one
        for one in summary["statistics"]["differences"]
        if one["arms"] == list(arms) and one["cells"] == cells
    ]
    return one


def slower(run: Run, cell: int, arm: str, by_ns: int) -> None:
    for row in run.requests:
        if row["cell"] == cell and row["arm"] == arm:
            row["ttft_ns"] += by_ns
            row["spans"]["prefill_ns"] += by_ns
            row["first_ns"] += by_ns


def test_what_does_not_differ_is_said_aloud(tmp_path: Path) -> None:
    run = of_requests(8)
    slower(run, 1, "recompute", 40 * MS)
    summary = summarise(run.write(tmp_path))
    statistics = summary["statistics"]
    # Recomputing takes 40 ms longer in cell 1 alone, 8 of 8 beyond all others.
    for cells in ([0, 1], [1, 2]):
        one = pair(summary, "recompute", cells=cells)
        assert one["outcome"] == "differs"
        assert one["p"] == pytest.approx(2 / 12870, rel=0.01)
        assert one["p"] < one["p_adjusted"] < 0.05
    assert pair(summary, "recompute", cells=[2, 3])["outcome"] == "no significant difference"
    assert pair(summary, "local_hit", cells=[0, 1])["p"] == 1.0
    assert (
        "local hit along links.a-b.km: no significant difference of TTFT in any of 3 pairs of "
        "neighbours (p = 1 or more)" in statistics["said"]
    )
    assert (
        "recompute along links.a-b.km: no significant difference of TTFT in 1 of 3 pairs of "
        "neighbours: a-b 100 km | a-b 600 km (p = 1)" in statistics["said"]
    )
    assert "remote hit against recompute: TTFT differs in all 4 cells" in statistics["said"]
    assert statistics["tests"]["adjusted_for"] == 3 * 3 + 2 * 4


def test_too_few_are_not_compared_and_that_is_said(tmp_path: Path) -> None:
    statistics = summarise(of_requests(3).write(tmp_path))["statistics"]
    assert {one["outcome"] for one in statistics["differences"]} == {"too few"}
    assert all(one["p"] is None for one in statistics["differences"])
    assert statistics["said"] == [
        "no TTFT is compared with another: 3 and 3 requests could show no smaller p than 0.1, "
        "which is not below 0.05"
    ]
    assert statistics["tests"]["adjusted_for"] == 0


def test_a_void_cell_is_compared_with_nothing(tmp_path: Path) -> None:
    run = of_requests(5)
    run.cells[1]["links"][0]["ok"] = False
    summary = summarise(run.write(tmp_path))
    found = summary["statistics"]["differences"]
    assert all(1 not in one["cells"] for one in found)
    assert pair(summary, "recompute", cells=[0, 2])["outcome"] == "no significant difference"


def test_a_summary_declares_warm_up_spread_and_what_carries_a_percentile(tmp_path: Path) -> None:
    run = of_requests(5)
    statistics = summarise(run.write(tmp_path / "virtual"))["statistics"]
    assert (statistics["unit"], statistics["seeds"]) == ("request", [1])
    assert statistics["warmup"]["requests"] == 1
    assert statistics["spread"]["from"] == "workload"
    assert statistics["p99"] == {"least": 100, "least_for_interval": 368}
    run.manifest["clock"] = "wall"
    statistics = summarise(run.write(tmp_path / "wall"))["statistics"]
    assert statistics["spread"]["from"] == "machine"
    assert "this machine's" in statistics["spread"]["said"]


def test_from_a_hundred_on_there_is_a_p99_and_from_fifteen_a_mean_with_its_interval(
    tmp_path: Path,
) -> None:
    summary = summarise(of_requests(100).write(tmp_path))
    arm = summary["cells"][0]["arms"]["local_hit"]
    # Repeats take 11, 12, … 110 ms.
    assert (arm["ttft_p50_ms"], arm["ttft_p99_ms"], arm["ttft_max_ms"]) == (60, 109, 110)
    assert arm["ttft_mean_ms"] == 60.5
    assert arm["p99_interval"] is None
    # 60.5 ± 1.96 · 28.87 / 10, which is what the bootstrap comes to at this n.
    assert arm["mean_interval"]["low_ms"] == pytest.approx(60.5 - 5.66, abs=0.7)
    assert arm["mean_interval"]["high_ms"] == pytest.approx(60.5 + 5.66, abs=0.7)
    assert arm["interval"]["confidence"] >= 0.95
    assert "n = 100 carries a p99 and no interval of it: that takes 368 samples" in summary["notes"]


def test_pairs_that_differ_by_one_amount_leave_no_chance() -> None:
    assert paired_p([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1.0
    assert paired_p([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]) == 0.0
    # Differences 1, 2, 3: t = 2 / (1 / sqrt 3) = 3.464 with two degrees of freedom.
    assert paired_p([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx(0.0742, abs=1e-4)


def test_student_agrees_with_scipy_and_its_interval_with_its_test() -> None:
    draw = random.Random(7)
    for _ in range(200):
        first = [draw.gauss(0, 1) for _ in range(draw.randint(2, 9))]
        second = [draw.gauss(0.8, 2) for _ in range(draw.randint(2, 9))]
        one, both = of_mean(first), of_difference(first, second)
        assert one is not None and both is not None
        assert one.p == pytest.approx(stats.ttest_1samp(first, 0).pvalue)
        welch = stats.ttest_ind(second, first, equal_var=False)
        assert both.p == pytest.approx(welch.pvalue)
        assert (both.low, both.high) == pytest.approx(tuple(welch.confidence_interval(0.95)))
        for found in (one, both):
            assert (found.p < 0.05) == (not found.low <= 0 <= found.high)


def test_no_estimate_of_a_single_one_and_a_certain_one_without_spread() -> None:
    assert of_mean([1.0]) is None and of_difference([1.0, 2.0], [3.0]) is None
    assert of_mean([0.5, 0.5]) == (0.5, 0.5, 0.5, 0.0)
    assert of_difference([1.0, 1.0], [1.0, 1.0, 1.0]) == (0.0, 0.0, 0.0, 1.0)


def test_an_adjusted_p_counts_what_was_tested() -> None:
    # Benjamini and Hochberg: p · m / rank, and never above the next larger one's.
    assert adjusted([0.03, None, 0.01, 0.02]) == [pytest.approx(0.03), None, 0.03, 0.03]
    assert adjusted([None, None]) == [None, None]
