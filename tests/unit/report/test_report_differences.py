"""What differs and what does not, as short as a terminal has room for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handwritten import MS, SCENARIO, Run
from rich.console import Console

from geokv.measure import summarise
from geokv.report.console import print_run
from geokv.report.differences import differences_in_short
from geokv.report.markdown import to_markdown


def of_requests(requests: int, **more: Any) -> Run:
    return Run({**SCENARIO, "workload": {**SCENARIO["workload"], "requests": requests}, **more})


def slower(run: Run, arm: str, cells: set[int], by_ns: int) -> None:
    for row in run.requests:
        if row["arm"] == arm and row["cell"] in cells:
            row["ttft_ns"] += by_ns
            row["spans"]["prefill_ns"] += by_ns
            row["first_ns"] += by_ns


@pytest.mark.parametrize(
    ("cells", "recompute"),
    [
        (set(), "recompute and local hit (all 5)"),
        ({3, 4, 5}, "recompute (all but 25|50 km), local hit (all 5)"),
        ({1, 3}, "recompute (75|100 km), local hit (all 5)"),
        ({1, 2, 4, 5}, "recompute (10|25 km, 75|100 km), local hit (all 5)"),
        ({3}, "recompute (3 of 5), local hit (all 5)"),
    ],
)
def test_a_line_names_the_neighbours_that_do_not_differ(
    tmp_path: Path, cells: set[int], recompute: str
) -> None:
    axis = {"path": "links.a-b.km", "values": [0, 10, 25, 50, 75, 100]}
    run = of_requests(5, sweep=[axis], expect={})
    slower(run, "recompute", cells, 40 * MS)
    for cell in range(6):
        slower(run, "remote-hit", {cell}, 20 * cell * MS)
    said, remote = differences_in_short(summarise(run.write(tmp_path)))
    assert said == (
        f"TTFT of neighbours, no significant difference: {recompute}; different: remote hit (all 5)"
    )
    assert remote == "TTFT of a remote hit: differs from recompute and local hit (all 6 cells)"


def test_what_is_wholly_apart_among_too_many_is_not_said_to_be_the_same(tmp_path: Path) -> None:
    run = of_requests(4)
    slower(run, "remote-hit", {3}, 200 * MS)
    summary = summarise(run.write(tmp_path))
    outcomes = {one["outcome"] for one in summary["statistics"]["differences"]}
    assert outcomes == {"no significant difference", "too few"}
    neighbours, remote = differences_in_short(summary)
    assert neighbours.endswith("; too few to tell: remote hit (100|600 km)")
    assert (
        remote == "TTFT of a remote hit: too few to tell from recompute and local hit (all 4 cells)"
    )


def test_of_several_axes_pairs_are_counted(tmp_path: Path) -> None:
    axes = [
        {"path": "links.a-b.km", "values": [0, 50, 100]},
        {"path": "links.a-b.rate", "values": ["10G", "100G"]},
    ]
    run = of_requests(5, sweep=axes, expect={})
    slower(run, "recompute", {0, 1}, 40 * MS)
    said, _ = differences_in_short(summarise(run.write(tmp_path)))
    # Along km 4 pairs and along the rate 3; the two from 0 to 50 km differ.
    assert "recompute (5 of 7), " in said


def test_the_axis_of_the_seeds_is_none_and_the_values_are_still_named(tmp_path: Path) -> None:
    run = of_requests(5, seeds=[1, 2, 3, 4, 5])
    for cell in range(20):
        seed, point = divmod(cell, 4)
        # At 100 km the seeds add 0 to 4 ms to 40, at 600 km 4 to 0: no difference of the two.
        by_ms = {2: 40 + seed, 3: 44 - seed}.get(point, 0)
        slower(run, "recompute", {cell}, by_ms * MS)
    said, _ = differences_in_short(summarise(run.write(tmp_path)))
    assert "recompute (0|50 km, 100|600 km)" in said


def test_too_few_to_compare_anything_is_one_line(tmp_path: Path) -> None:
    summary = summarise(of_requests(3).write(tmp_path))
    assert differences_in_short(summary) == summary["statistics"]["said"]


def test_the_terminal_has_the_short_and_the_report_the_full_list(tmp_path: Path) -> None:
    summary = summarise(of_requests(5).write(tmp_path))
    console = Console(width=110)
    with console.capture() as captured:
        print_run(summary, console)
    shown = [line for line in captured.get().splitlines() if line.startswith("TTFT of")]
    assert len(shown) == 2 and "p = " not in captured.get()
    assert "any of 3 pairs of neighbours (p = 1 or more)" in to_markdown(summary)
