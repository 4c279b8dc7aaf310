"""How sure the times of a drill are, and which of a swept one differ: by hand, whole folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handwritten_drill import SCENARIO, Drill
from handwritten_drill_sweep import FETCHED_MS, probe, sweep, swept_drill
from histories import MS

from geokv.measure.drill.summary import summarise_drill
from geokv.measure.statistics.intervals import Stream, mean_interval
from geokv.report.history import merge_history

HITS, MISSES = [18] * 48, [73] * 12
"""ms to the first token: requests 20 to 31 of 60 lose their fetch."""


def summary_of(drill: Drill, folder: Path) -> dict[str, Any]:
    merge_history(drill.write(folder))
    return summarise_drill(folder)


def pairs_of(summary: dict[str, Any]) -> dict[tuple[Any, ...], str]:
    """Kinds and cells of each comparison → its outcome."""
    return {
        (*one["arms"], *one["cells"]): one["outcome"]
        for one in summary["statistics"]["differences"]
    }


def test_a_drill_s_times_have_intervals(tmp_path: Path) -> None:
    cell = summary_of(Drill(), tmp_path)["cells"][0]
    assert (cell["n"], cell["ttft_mean_ms"], cell["ttft_p50_ms"]) == (60, 29.0, 18.0)
    # Twelve of sixty lie 55 ms above the rest: 29 ± 1.96 · 55 · √(0.2 · 0.8 / 60); BCa leans up.
    ends = cell["mean_interval"]
    assert ends["low_ms"] == pytest.approx(29 - 5.57, abs=1.2)
    assert ends["high_ms"] == pytest.approx(29 + 5.57, abs=2.5)
    assert ends["confidence"] == 0.95
    assert (cell["interval"]["low_ms"], cell["interval"]["high_ms"]) == (18.0, 18.0)
    assert cell["interval"]["confidence"] >= 0.95
    # Sixty carry no p99, and so no interval of one.
    assert (cell["ttft_p99_ms"], cell["p99_interval"]) == (None, None)


def test_the_same_records_give_the_same_ends_and_each_cell_draws_by_itself(tmp_path: Path) -> None:
    cells = summary_of(Drill({**SCENARIO, "seed": 7}), tmp_path)["cells"]
    assert cells == summarise_drill(tmp_path)["cells"]
    samples = [one * MS for one in (*HITS[:20], *MISSES, *HITS[20:])]
    for cell in cells:
        stream = Stream(7, (f"cell {cell['cell']}", "answered", "mean"))
        found = mean_interval(samples, stream)
        assert found is not None
        ends = cell["mean_interval"]
        assert (ends["low_ms"], ends["high_ms"]) == (
            pytest.approx(found.low_ns / MS, abs=5e-4),
            pytest.approx(found.high_ns / MS, abs=5e-4),
        )


def test_each_kind_has_its_own_and_too_few_have_none(tmp_path: Path) -> None:
    drill = Drill(sweep(sweep=[], figures=[]))
    for event in drill.cells[0]:
        # The first 28 requests are of two kinds, all others are cached.
        if int(str(event.get("request_id", "r0"))[1:]) < 28:
            probe(event, FETCHED_MS[0])
        elif event["op"] == "request":
            event["probe"] = "cached"
    kinds = summary_of(drill, tmp_path)["cells"][0]["kinds"]
    assert (kinds["cached"]["n"], kinds["cold"]["n"]) == (46, 14)
    assert kinds["cached"]["mean_interval"]["low_ms"] < kinds["cached"]["ttft_mean_ms"]
    assert kinds["cached"]["ttft_mean_ms"] < kinds["cached"]["mean_interval"]["high_ms"]
    # Fourteen carry no interval of a mean; of a median they do, with the confidence they have.
    assert (kinds["cold"]["ttft_mean_ms"], kinds["cold"]["mean_interval"]) == (73.0, None)
    assert kinds["cold"]["interval"]["low_ms"] == kinds["cold"]["interval"]["high_ms"] == 73.0


def test_of_one_cell_nothing_is_said_of_differences(tmp_path: Path) -> None:
    """Its control is another cell, and broken on purpose."""
    summary = summary_of(Drill(), tmp_path)
    assert [cell["control"] for cell in summary["cells"]] == [False, True]
    assert summary["statistics"].keys().isdisjoint({"differences", "said", "tests"})


def test_cells_and_kinds_of_a_sweep_are_compared(tmp_path: Path) -> None:
    summary = summary_of(swept_drill(), tmp_path)
    outcomes = pairs_of(summary)
    # Cells 0 and 2 are without load, 1 and 3 with it; 0 and 1 are at 0 km. The control is cell 4.
    same = "no significant difference"
    assert outcomes == {
        ("cached", 0, 1): "differs", ("cached", 2, 3): "differs",
        ("cached", 0, 2): same, ("cached", 1, 3): same,
        ("cold", 0, 1): same, ("cold", 2, 3): same, ("cold", 0, 2): same, ("cold", 1, 3): same,
        **{("cached", "cold", cell): "differs" for cell in range(4)},
    }  # fmt: skip
    statistics = summary["statistics"]
    assert statistics["tests"]["adjusted_for"] == len(outcomes)
    assert statistics["tests"]["by"] == "Mann and Whitney's U test"
    said = statistics["said"]
    assert "cached along timeline.load.share: TTFT differs in all 2 pairs of neighbours" in said
    assert "cached against cold: TTFT differs in all 4 cells" in said


def test_a_sweep_that_tells_no_kinds_apart_compares_all_that_was_answered(tmp_path: Path) -> None:
    axis = {"path": "links.a-b.km", "values": [0, 50, 100]}
    drill = Drill({**SCENARIO, "sweep": [axis]})
    for event in drill.of("answer", 2):
        event["ttft_ns"] += 5 * MS
    assert pairs_of(summary_of(drill, tmp_path)) == {
        ("answered", 0, 1): "no significant difference",
        ("answered", 1, 2): "differs",
    }


def test_a_void_cell_is_compared_with_nothing(tmp_path: Path) -> None:
    drill = swept_drill()
    drill.of("links", 1)[0]["ok"] = False
    cells = {cell for pair in pairs_of(summary_of(drill, tmp_path)) for cell in pair}
    assert 1 not in cells and {0, 2, 3} <= cells


def test_a_kind_that_only_one_of_two_neighbours_has_is_not_compared(tmp_path: Path) -> None:
    drill = swept_drill()
    for event in drill.of("request", 1):
        if event["probe"] == "cold":
            event["probe"] = "cached"
    outcomes = pairs_of(summary_of(drill, tmp_path))
    assert ("cached", 0, 1) in outcomes and ("cold", 0, 2) in outcomes
    assert outcomes.keys().isdisjoint({("cold", 0, 1), ("cold", 1, 3), ("cached", "cold", 1)})
