"""Progress of a run: what is counted, what is estimated, and what fits a terminal."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from geokv.report.progress.board import Board
from geokv.report.progress.lines import QUIET_S, Lines
from geokv.report.progress.plan import RunPlan, plan_of
from geokv.report.progress.steps import clock_words
from geokv.report.progress.tally import Tally
from geokv.report.progress.watch import Silent, watch_run
from geokv.scenario import load_scenario

FOLDER = {"event": "folder", "path": "r", "parts": 1, "kernel": "k"}


class Clock:
    """Real time that passes when the test says so."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@cache
def planned(name: str) -> RunPlan:
    return plan_of(load_scenario(name))


def smoke() -> RunPlan:
    """Two cells of three arms, two requests and a warm-up each."""
    return planned("smoke")


def cell(plan: RunPlan, index: int, part: int = 0, t_s: float = 0.1) -> dict[str, Any]:
    label = plan.cells[index].label
    return {"event": "cell", "part": part, "cell": index, "label": label, "t_ns": round(t_s * 1e9)}


def request(
    arm: str = "recompute", part: int = 0, warmup: bool = False, t_s: float = 1.0
) -> dict[str, Any]:
    return {
        "event": "request", "part": part, "arm": arm, "warmup": warmup, "ttft_ms": 31.25,
        "error": None, "t_ns": round(t_s * 1e9),
    }  # fmt: skip


def shown(board: Board, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(board)
    return out.getvalue().splitlines()


def test_a_plan_counts_what_is_asked_in_each_cell() -> None:
    plan = smoke()
    assert [one.label for one in plan.cells] == ["a-b 0 km", "a-b 50 km"]
    assert [(one.asked, one.warmups) for one in plan.cells] == [(6, 3), (6, 3)]
    assert plan.asked == 12
    more = plan_of(load_scenario("smoke", ["workload.requests=5", "workload.warmup=0"]))
    assert [(one.asked, one.warmups) for one in more.cells] == [(15, 0)] * 2
    drill = plan_of(load_scenario("link-cut"))
    assert [one.arms for one in drill.cells] == [("stream",)] * 2
    assert drill.cells[1].label == "control"


def test_requests_are_counted_once_and_preparing_never() -> None:
    plan, clock = smoke(), Clock()
    tally = Tally(plan, clock)
    for step in (FOLDER, cell(plan, 0), request("prepare", warmup=True), request(warmup=True)):
        tally.take(step)
    assert (tally.asked, tally.cells_done) == (0, 0)
    for _ in range(2):
        tally.take(request())
    vm = tally.vms[0]
    assert (tally.asked, vm.arm, vm.done) == (2, "recompute", {"recompute": 3})
    assert vm.own_s == pytest.approx(0.9)
    tally.take(cell(plan, 1))
    assert (tally.cells_done, tally.vms[0].done) == (1, {})
    tally.take({"event": "report"})
    assert (tally.cells_done, tally.over) == (2, True)


def test_nothing_is_estimated_before_something_is_known() -> None:
    plan, clock = smoke(), Clock()
    tally = Tally(plan, clock)
    assert tally.left_s() is None
    tally.take(FOLDER)
    tally.take(cell(plan, 0))
    clock.s += 5
    tally.take(request())
    assert tally.left_s() is None, "one request says little"
    clock.s += 1
    tally.take(request())
    # 2 of 9 in 6 s: 21 s more for this cell, 27 s for the next.
    assert tally.left_s() == pytest.approx(21 + 27)
    tally.take({"event": "report"})
    assert tally.left_s() is None


def test_finished_cells_say_more_than_requests_do() -> None:
    plan, clock = smoke(), Clock()
    tally = Tally(plan, clock)
    tally.take(FOLDER)
    tally.take(cell(plan, 0))
    clock.s += 30
    tally.take(cell(plan, 1))
    assert tally.left_s() == pytest.approx(30)
    clock.s += 10
    for arm in ("recompute", "local-hit", "remote-hit"):
        tally.take(request(arm))
    assert tally.left_s() == pytest.approx(30 * 6 / 9)
    clock.s += 50
    # It has outlasted the first: its own pace counts now.
    assert tally.left_s() == pytest.approx(60 * 6 / 3)


def test_an_estimate_comes_true_where_all_cells_are_alike() -> None:
    """Held against the truth at every step of a run that is played through."""
    axis = {"path": "links.a-b.km", "values": list(range(8))}
    plan, clock = plan_of(load_scenario("smoke", [f"sweep={json.dumps([axis])}"])), Clock()
    tally = Tally(plan, clock)
    tally.take({**FOLDER, "parts": 2})
    end_s = clock.s + 4 * (3 + 9)
    seen = 0
    for round_ in range(4):
        for part in (0, 1):
            tally.take(cell(plan, 2 * round_ + part, part))
        clock.s += 3
        for _ in range(9):
            clock.s += 1
            for part in (0, 1):
                tally.take(request(part=part))
            left_s = tally.left_s()
            if round_ and left_s is not None:
                seen += 1
                assert left_s == pytest.approx(end_s - clock.s, abs=3)
    assert seen == 27


def test_of_several_vms_the_last_one_counts() -> None:
    plan, clock = smoke(), Clock()
    tally = Tally(plan, clock)
    tally.take({**FOLDER, "parts": 2})
    tally.take(cell(plan, 0, part=0))
    clock.s += 4
    for _ in range(2):
        tally.take(request(part=0))
    assert tally.left_s() is None, "nothing is known of the other"
    tally.take(cell(plan, 1, part=1))
    for _ in range(8):
        tally.take(request(part=0))
    clock.s += 8
    for _ in range(3):
        tally.take(request(part=1))
    assert tally.left_s() == pytest.approx(8 * 6 / 3)


@pytest.mark.parametrize("width", range(60, 201, 7))
@pytest.mark.parametrize("name", ["smoke", "granularity", "link-cut"])
def test_a_board_fits_every_terminal(name: str, width: int) -> None:
    plan, clock = planned(name), Clock()
    board = Board(plan, Console(file=io.StringIO()), clock)
    kept = [shown(board, width)]
    board.take({**FOLDER, "parts": 2})
    for part in (0, 1):
        board.take(cell(plan, len(plan.cells) - 2 + part, part))
    kept.append(shown(board, width))
    for part in (0, 1):
        for _ in range(3):
            clock.s += 61
            board.take(request(plan.cells[0].arms[0], part, t_s=clock.s))
    kept.append(shown(board, width))
    board.take({"event": "fault", "part": 0, "name": "a-very-long-name-of-a-fault" * 2,
                "phase": "heal-asked", "t_ns": 0})  # fmt: skip
    kept.append(shown(board, width))
    for lines in kept:
        assert max(cell_len(line) for line in lines) <= width
        assert name in lines[0]
    assert f"6/{plan.asked} requests" in "\n".join(kept[2])
    assert "left" in "\n".join(kept[2])
    assert "s virtual" in kept[2][-1]
    assert ("TTFT 31.25 ms" in kept[2][-1]) == (width >= 92)


def test_a_board_of_a_wall_clock_has_no_second_clock() -> None:
    plan = plan_of(load_scenario("smoke", ["clock=wall"]))
    board = Board(plan, Console(file=io.StringIO()), Clock())
    for step in (FOLDER, cell(plan, 0), request()):
        board.take(step)
    assert "virtual" not in "\n".join(shown(board, 120))


def test_lines_say_what_begins_and_break_a_long_silence() -> None:
    plan, clock, out = smoke(), Clock(), io.StringIO()
    lines = Lines(plan, Console(file=out, width=60, color_system=None), clock)
    with lines:
        lines.take(FOLDER)
        lines.take(cell(plan, 0))
        for _ in range(6):
            clock.s += 2
            lines.take(request())
        lines.take(cell(plan, 1))
        clock.s += QUIET_S
        lines.take(request())
        lines.take({"event": "fault", "part": 0, "name": "cut", "phase": "took-effect", "t_ns": 1})
        lines.take({"event": "report"})
    assert out.getvalue().splitlines() == [
        "    0.0 s  booting",
        "    0.0 s  cell 1 of 2: a-b 0 km",
        "   12.0 s  cell 2 of 2: a-b 50 km · 6 of 12 requests, about 12 s left",
        "   42.0 s  cell a-b 50 km · 7 of 12 requests",
        "   42.0 s  cut: took effect",
        "   42.0 s  judging and drawing",
    ]


def test_a_step_that_nobody_here_knows_is_counted_and_shown_as_nothing() -> None:
    plan = smoke()
    board = Board(plan, Console(file=io.StringIO()), Clock())
    for step in (FOLDER, cell(plan, 0), {"event": "sample", "part": 0, "t_ns": 5 * 10**9}):
        board.take(step)
    assert board.tally.vms[0].own_s == pytest.approx(4.9)


def test_where_progress_goes_decides_how_it_is_shown(tmp_path: Path) -> None:
    scenario = load_scenario("smoke")
    terminal = Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(watch_run(scenario, terminal), Board)
    with (tmp_path / "log").open("w") as file:
        assert isinstance(watch_run(scenario, Console(file=file)), Lines)
    assert isinstance(watch_run(scenario, terminal, quiet=True), Silent)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (9e3, "2 h 30 min")],
)
def test_durations_in_words(seconds: float, said: str) -> None:
    assert clock_words(seconds) == said
