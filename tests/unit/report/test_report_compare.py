"""Runs beside each other: paired by cell and arm, refused when set up otherwise, shown alike."""

from __future__ import annotations

import copy
import csv
import io
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from handwritten import MS, SCENARIO, Run
from handwritten_drill import Drill

from geokv.errors import ConfigError
from geokv.measure.comparing.pairs import Pair
from geokv.report.compare.comparison import compare_runs
from geokv.report.compare.console import print_comparison
from geokv.report.compare.html import comparison_html
from geokv.report.compare.plot import draw
from geokv.report.compare.rows import to_csv
from geokv.report.console import table_console
from geokv.report.history import merge_history


def written(
    folder: Path,
    requests: int = 8,
    factors: dict[tuple[int, str], float] | None = None,
    times_ms: dict[tuple[int, str], Sequence[float]] | None = None,
    **changes: Any,
) -> Path:
    """A run whose requests each take up to 0.3 ms more, drawn by the folder's name, and ``factors``
    times as long in some (cell, arm), or exactly ``times_ms`` one after the other."""
    workload = {**SCENARIO["workload"], "requests": requests}
    run = Run({**copy.deepcopy(SCENARIO), "workload": workload, **changes})
    draw = random.Random(folder.name)
    for row in run.requests:
        factor = (factors or {}).get((row["cell"], row["arm"]), 1.0)
        more_ns = round(draw.random() * 0.3 * MS + row["ttft_ns"] * (factor - 1))
        if exact := (times_ms or {}).get((row["cell"], row["arm"])):
            more_ns = round(exact[row["repeat"]] * MS) - row["ttft_ns"]
        for name in ("ttft_ns", "first_ns", "done_ns"):
            row[name] += more_ns
        row["spans"]["prefill_ns"] += more_ns
    return run.write(folder)


def pair(pairs: list[Pair], label: str, arm: str) -> Pair:
    (one,) = [one for one in pairs if (one.label, one.arm) == (label, arm)]
    return one


def test_what_differs_is_named_with_its_ratio_and_what_does_not_is_called_that(
    tmp_path: Path,
) -> None:
    slow = {(2, "remote-hit"): 1.2, (0, "recompute"): 0.5}
    folders = [written(tmp_path / "before"), written(tmp_path / "after", factors=slow)]
    (against,) = compare_runs(folders).others
    one = pair(against.pairs, "a-b 100 km", "remote hit")
    assert one.outcome == "slower"
    assert one.ratio == pytest.approx(1.2, abs=0.005)
    assert one.low is not None and one.high is not None
    assert one.low <= 1.2 + 0.002 and one.high >= 1.2 - 0.002
    assert (one.unit, one.samples) == ("pairs", (8, 8))
    assert pair(against.pairs, "a-b 0 km", "recompute").outcome == "faster"
    assert against.counts == {"slower": 1, "faster": 1, "no significant difference": 10}
    assert "1 slower, 1 faster, 10 with no significant difference" in against.said
    assert "most of all recompute at a-b 0 km: 0.5001 times" in against.said


RECOMPUTE = (0, "recompute")


@pytest.mark.parametrize("odd", [1.49, 1.0 / 0.6])
def test_the_direction_that_is_said_is_that_of_the_ratio_that_is_tested(
    tmp_path: Path, odd: float
) -> None:
    """Ten of eleven requests take 0.6 times as long; the median request is the eleventh."""
    times = [100.0] * 6 + [300.0] * 5
    after = [0.6 * one for one in times]
    after[5] = times[5] * odd
    folders = [
        written(tmp_path / name, 11, times_ms={RECOMPUTE: exact})
        for name, exact in (("before", times), ("after", after))
    ]
    (against,) = compare_runs(folders).others
    one = pair(against.pairs, "a-b 0 km", "recompute")
    assert (one.base_ns, one.other_ns) == (100 * MS, pytest.approx(100 * MS * odd))
    assert one.unit == "pairs" and one.p is not None and one.p < 0.01
    assert one.ratio == pytest.approx((0.6**10 * odd) ** (1 / 11))
    assert one.low is not None and one.high is not None and one.low < one.ratio < one.high < 1
    assert one.outcome == "faster"


def test_requests_that_are_no_pairs_are_slower_only_where_test_and_ratio_say_so(
    tmp_path: Path,
) -> None:
    """Of one side all small ones are smaller, and all large ones: its median is the other's."""
    base = [100.0 + n for n in range(9)] + [200.0] + [300.0 + n for n in range(9)]
    other = [50.0 + n for n in range(9)] + [200.0] + [201.0 + n for n in range(9)]
    folders = [
        written(tmp_path / name, 19, times_ms={RECOMPUTE: exact}, seed=seed)
        for name, exact, seed in (("before", base, 1), ("after", other, 2))
    ]
    (against,) = compare_runs(folders, force=True).others
    one = pair(against.pairs, "a-b 0 km", "recompute")
    assert (one.unit, one.ratio) == ("requests", 1.0)
    assert one.p is not None and one.p < 0.05
    assert one.low is not None and one.high is not None and one.low <= 1 <= one.high
    assert one.outcome == "no significant difference"


@pytest.mark.parametrize(
    ("change", "unit"),
    [
        ({"workload": {"question_tokens": 33}}, "requests"),
        ({"deployment": {"model": "geokv-tiny-gqa"}}, "requests"),
        ({"cache": {"substrate": {"streams": 8}}}, "pairs"),
    ],
)
def test_requests_that_asked_something_else_are_no_pairs(
    tmp_path: Path, change: dict[str, Any], unit: str
) -> None:
    base = written(tmp_path / "base")
    changes = {name: {**SCENARIO.get(name, {}), **inner} for name, inner in change.items()}
    other = written(tmp_path / "other", **changes)
    (against,) = compare_runs([base, other], force=True).others
    assert {one.unit for one in against.pairs} == {unit}


def test_questions_of_another_cell_are_no_pairs(tmp_path: Path) -> None:
    """Drawn questions are those of the cell's number: 50 km comes second here and first there."""
    base = written(tmp_path / "base")
    sweep = [{"path": "links.a-b.km", "values": [50, 100], "out_of_range": [600]}]
    other = written(tmp_path / "other", sweep=sweep, expect={})
    (against,) = compare_runs([base, other], force=True).others
    assert pair(against.pairs, "a-b 50 km", "recompute").unit == "requests"


def test_a_run_is_as_fast_as_itself(tmp_path: Path) -> None:
    one = written(tmp_path / "same")
    two = written(tmp_path / "other" / "same")
    (against,) = compare_runs([one, two]).others
    assert {(pair.ratio, pair.low, pair.high, pair.p) for pair in against.pairs} == {(1, 1, 1, 1)}
    assert against.counts == {"no significant difference": 12}
    assert against.said.startswith("no significant difference of any TTFT")


@pytest.mark.parametrize("factor", [1.0, 1.00001, 1.2, 9.0])
def test_numbers_of_the_axis_differ_however_alike_the_runs_are(
    tmp_path: Path, factor: float
) -> None:
    one = written(tmp_path / "same")
    two = written(tmp_path / "other" / "same", factors={(2, "remote-hit"): factor})
    figure = draw(compare_runs([one, two]).others[0])
    assert figure is not None
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    axis = axes.xaxis
    ticks = [float(tick) for tick in axis.get_majorticklocs() if low <= tick <= high]
    shown = axis.get_major_formatter().format_ticks(ticks)
    assert len(shown) >= 2 and len(set(shown)) == len(shown)
    assert low <= 0.99 and high >= 1.01


def test_different_setups_are_refused_with_the_first_difference_and_both_values(
    tmp_path: Path,
) -> None:
    base = written(tmp_path / "base")
    cache = {**SCENARIO["cache"], "substrate": {"streams": 8}}
    other = written(tmp_path / "streams", cache=cache)
    with pytest.raises(ConfigError) as caught:
        compare_runs([base, other])
    assert "different set-ups: cache.substrate.streams: 4 and 8" in caught.value.message
    assert "--force" in (caught.value.hint or "")
    farther = copy.deepcopy(SCENARIO["topology"])
    farther["links"]["a-b"]["km"] = 60
    with pytest.raises(ConfigError, match=r"links\.a-b\.km: 50\.0 and 60\.0"):
        compare_runs([base, written(tmp_path / "km", topology=farther)])
    faster = copy.deepcopy(SCENARIO["topology"])
    faster["links"]["a-b"]["rate"] = "400G"
    with pytest.raises(ConfigError, match=r"links\.a-b\.rate: unset and 400 Gb/s"):
        compare_runs([base, written(tmp_path / "rate", topology=faster)])
    with pytest.raises(ConfigError, match=r"seeds: \[1\] and \[2\] \(and"):
        compare_runs([base, written(tmp_path / "more", requests=9, seed=2)])
    forced = compare_runs([base, other], force=True)
    assert forced.forced and [one.path for one in forced.others[0].setup] == [
        "cache.substrate.streams"
    ]
    assert "compared by force" in shown(forced)
    assert {row["forced"] for row in csv.DictReader(io.StringIO(to_csv(forced)))} == {"yes"}
    page = comparison_html(forced)
    assert "forced" in page and "run 1: cache.substrate.streams: 4 and 8" in page


def test_what_is_only_said_or_promised_is_no_setup(tmp_path: Path) -> None:
    base = written(tmp_path / "base")
    other = written(tmp_path / "other", title="Another title", expect={"remote_used": True})
    manifest = other / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"geokv": "0.1.0"', '"geokv": "0.2.0"'))
    comparison = compare_runs([base, other])
    assert not comparison.forced
    assert "version of geokv: 0.1.0 and 0.2.0" in shown(comparison)


def test_other_seeds_share_no_questions(tmp_path: Path) -> None:
    base, other = written(tmp_path / "one"), written(tmp_path / "two", seed=2)
    (against,) = compare_runs([base, other], force=True).others
    assert {(one.unit, one.samples) for one in against.pairs} == {("requests", (8, 8))}
    # Of five no test of ranks is sure among so many, however far apart they lie.
    few = {(cell, "local-hit"): 2.0 for cell in (0,)}
    base = written(tmp_path / "base5", 5)
    other = written(tmp_path / "other5", 5, few, seed=2)
    (against,) = compare_runs([base, other], force=True).others
    assert pair(against.pairs, "a-b 0 km", "local hit").outcome == "too few"
    assert pair(against.pairs, "a-b 50 km", "local hit").outcome == "no significant difference"


def test_two_requests_say_nothing(tmp_path: Path) -> None:
    base, other = written(tmp_path / "a", 2), written(tmp_path / "b", 2, {(0, "recompute"): 3})
    (against,) = compare_runs([base, other]).others
    assert against.counts == {"too few": 12}
    assert against.said.startswith("nothing can be said")
    assert all(one.low is None for one in against.pairs)


def test_seeds_are_paired(tmp_path: Path) -> None:
    slow = {(cell, "remote-hit"): 1.05 for cell in (0, 4, 8)}
    base = written(tmp_path / "a", 2, seeds=3)
    (against,) = compare_runs([base, written(tmp_path / "b", 2, slow, seeds=[1, 2, 3])]).others
    one = pair(against.pairs, "a-b 0 km", "remote hit")
    assert (one.unit, one.samples, one.outcome) == ("seeds", (3, 3), "slower")
    assert one.low is not None and one.high is not None
    assert one.low < 1.05 < one.high and one.high - one.low < 0.02


def test_other_seeds_are_compared_by_the_interval_of_their_own_test(tmp_path: Path) -> None:
    slow = {(cell, "remote-hit"): 1.5 for cell in (0, 4, 8)}
    base = written(tmp_path / "a", 2, seeds=[1, 2, 3])
    other = written(tmp_path / "b", 2, slow, seeds=[4, 5, 6])
    (against,) = compare_runs([base, other], force=True).others
    one = pair(against.pairs, "a-b 0 km", "remote hit")
    assert (one.unit, one.samples, one.outcome) == ("seeds", (3, 3), "slower")
    assert one.low is not None and one.high is not None and 1 < one.low < 1.5 < one.high
    # Three and three that do not differ are no "too few": that is a word for tests of ranks.
    assert pair(against.pairs, "a-b 0 km", "recompute").outcome == "no significant difference"
    one_seed = written(tmp_path / "c", 2, seed=1)
    (against,) = compare_runs([base, one_seed], force=True).others
    assert {one.outcome for one in against.pairs} == {"too few"}


def test_void_and_missing_are_no_numbers(tmp_path: Path) -> None:
    base = written(tmp_path / "base")
    workload = {**SCENARIO["workload"], "requests": 8}
    run = Run({**SCENARIO, "workload": workload})
    run.cells[1]["links"][0].update(ok=False, problems=["too slow"])
    run.requests = [row for row in run.requests if (row["cell"], row["arm"]) != (0, "local-hit")]
    (against,) = compare_runs([base, run.write(tmp_path / "other")]).others
    one = pair(against.pairs, "a-b 50 km", "recompute")
    assert (one.outcome, one.ratio) == ("void", None) and "too slow" in one.why
    gone = pair(against.pairs, "a-b 0 km", "local hit")
    assert (gone.outcome, gone.ratio) == ("missing", None)
    assert gone.why == "no answer in this run"


def test_a_cell_that_one_run_never_had_is_not_in_it(tmp_path: Path) -> None:
    base = written(tmp_path / "base")
    sweep = [{"path": "links.a-b.km", "values": [0, 50, 75], "out_of_range": [600]}]
    other = written(tmp_path / "other", sweep=sweep, expect={})
    (against,) = compare_runs([base, other], force=True).others
    assert pair(against.pairs, "a-b 75 km", "recompute").why == "not in the base"
    assert pair(against.pairs, "a-b 100 km", "recompute").why == "not in this run"


def test_a_drill_without_an_answer_had_its_cell_all_the_same(tmp_path: Path) -> None:
    folders = []
    for name in ("a", "b"):
        drill = Drill()
        for row in drill.of("answer"):
            if name == "a":
                row["ttft_ns"] = None
        folders.append(drill.write(tmp_path / name))
        merge_history(folders[-1])
    (against,) = compare_runs(folders).others
    assert [one.why for one in against.pairs] == ["no answer in the base"]


def test_drills_are_compared_without_their_control(tmp_path: Path) -> None:
    folders = []
    for name in ("a", "b"):
        drill = Drill()
        for row in drill.of("answer"):
            if name == "b" and row.get("ttft_ns"):
                row["ttft_ns"] = row["ttft_ns"] * 11 // 10
        folders.append(drill.write(tmp_path / name))
        merge_history(folders[-1])
    (against,) = compare_runs(folders).others
    (one,) = against.pairs
    assert (one.arm, one.outcome, one.unit) == ("answered", "slower", "pairs")
    assert one.ratio == pytest.approx(1.1, abs=0.001)
    with pytest.raises(ConfigError, match="set-ups: kind: drill and measurement"):
        compare_runs([folders[0], written(tmp_path / "run")])


def test_every_form_shows_the_same(tmp_path: Path) -> None:
    slow = {(2, "remote-hit"): 1.2}
    names = ("base", "slow", "same")
    folders = [written(tmp_path / name, factors=slow if name == "slow" else None) for name in names]
    comparison = compare_runs(folders)
    printed = shown(comparison)
    assert "run 2 against the base" in printed and "slower" in printed
    # However narrow the terminal is, a folder stands in one piece, and nowhere in a table.
    assert printed.count(str(tmp_path)) == 3
    assert [f"run {n}: {folder}" in printed for n, folder in enumerate(folders)] == [
        False,
        True,
        True,
    ]
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert len(rows) == 24
    (row,) = [row for row in rows if row["outcome"] == "slower"]
    assert (row["cell"], row["arm"], row["run"]) == ("a-b 100 km", "remote hit", str(folders[1]))
    assert float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
    page = comparison_html(comparison)
    assert page.count("<svg") == 2 and "src=" not in page and "<script" not in page
    assert "slower" in page and "Nothing differs" in page
    assert comparison_html(compare_runs(folders)) == page, "equal runs give equal bytes"


@pytest.mark.parametrize("folders", [["base"], ["base", "base"]])
def test_one_run_is_no_comparison(tmp_path: Path, folders: list[str]) -> None:
    written(tmp_path / "base")
    with pytest.raises(ConfigError, match="compare"):
        compare_runs([tmp_path / name for name in folders])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run folder"):
        compare_runs([written(tmp_path / "base"), tmp_path / "nothing"])


def test_the_command(tmp_path: Path) -> None:
    base, other = written(tmp_path / "base"), written(tmp_path / "other")
    page, table = tmp_path / "out.html", tmp_path / "out.csv"
    done = geokv("compare", base, other, "--html", page, "--csv", table)
    assert done.returncode == 0, done.stderr
    assert "no significant difference of any TTFT" in done.stdout
    assert page.read_text().startswith("<!doctype html>")
    assert len(table.read_text().splitlines()) == 13
    refused = geokv("compare", base, written(tmp_path / "third", requests=9))
    assert refused.returncode == 2
    assert "workload.requests: 8 and 9" in refused.stderr.replace("\n", " ")


def test_what_cannot_be_compared_ends_with_2(tmp_path: Path) -> None:
    base, half = written(tmp_path / "base"), written(tmp_path / "half")
    (half / "records" / "requests.jsonl").unlink()
    bare = written(tmp_path / "bare")
    (bare / "manifest.json").unlink()
    for other, said in (
        (tmp_path / "nowhere", "no such run folder"),
        (bare, "it has no manifest.json"),
        (half, "requests.jsonl: cannot be read"),
    ):
        done = geokv("compare", base, other)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_compared(
    tmp_path: Path,
) -> None:
    base, other = written(tmp_path / "base"), written(tmp_path / "other")
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "no" / "x.html", "mkdir -p")):
        done = geokv("compare", base, other, "--html", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--html" in done.stderr and said in done.stderr and "--out" not in done.stderr


def geokv(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geokv", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def shown(comparison: Any) -> str:
    console = table_console()
    with console.capture() as captured:
        print_comparison(comparison, console)
    return captured.get()


def test_a_run_that_was_looked_at_is_another_set_up(tmp_path: Path) -> None:
    folders = [written(tmp_path / name) for name in ("alone", "live")]
    manifest = folders[1] / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "live": True}))
    with pytest.raises(ConfigError, match="live: unset and True"):
        compare_runs(folders)
