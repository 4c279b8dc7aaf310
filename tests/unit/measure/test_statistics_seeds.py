"""Several seeds: a row per point, its numbers over the seeds, its verdict that of every seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handwritten import MS, SCENARIO, Run

from geokv.errors import ConfigError
from geokv.measure import summarise
from geokv.measure.statistics.replicates import mean, student_interval
from geokv.report.console import print_run, table_console
from geokv.report.csv import to_csv
from geokv.report.markdown import to_markdown
from geokv.report.run_folder import write_all
from geokv.scenario import load_scenario
from geokv.scenario.seeds import parse_seeds


def seeded(seeds: Any, **more: Any) -> Run:
    run = Run({**SCENARIO, "seeds": seeds, **more})
    for row in run.requests:
        # With the i-th seed everything takes i² ms more.
        number = row["cell"] // 4
        by_ns = number**2 * MS
        for name in ("ttft_ns", "first_ns", "done_ns"):
            row[name] += by_ns
        row["spans"]["prefill_ns"] += by_ns
    return run


def test_cells_are_every_point_with_every_seed_the_seed_changing_last() -> None:
    cells = load_scenario({**SCENARIO, "seeds": [4, 9]}).cells()
    assert [cell.settings for cell in cells[3:5]] == [
        {"seed": 4, "links.a-b.km": 600},
        {"seed": 9, "links.a-b.km": 0},
    ]
    assert [cell.scenario.seed for cell in cells] == [4] * 4 + [9] * 4
    assert all(cell.scenario.seeds is None for cell in cells)
    assert cells[4].label == "seed 9, a-b 0 km"
    counted = load_scenario({**SCENARIO, "seed": 7, "seeds": 3})
    assert counted.seed_list == [7, 8, 9]
    assert load_scenario(SCENARIO).seed_list == [1]
    assert load_scenario(counted.resolved()).hash == counted.hash


def test_a_seed_counts_once_however_many_requests_it_asks(tmp_path: Path) -> None:
    summary = summarise(seeded(3).write(tmp_path))
    assert (summary["verdict"], summary["ran"]["seeds"]) == ("pass", [1, 2, 3])
    assert [cell["settings"] for cell in summary["cells"]] == [
        {"links.a-b.km": km} for km in (0, 50, 100, 600)
    ]
    arm = summary["cells"][2]["arms"]["recompute"]
    # Medians 501, 502 and 505 ms; t with two degrees of freedom is 4.3027.
    assert arm["ttft_p50_ms"] == 502.667
    half = 4.302653 * (((1.6667**2) + (0.6667**2) + (2.3333**2)) / 2) ** 0.5 / 3**0.5
    assert arm["interval"]["low_ms"] == pytest.approx(502.6667 - half, abs=2e-3)
    assert arm["interval"]["high_ms"] == pytest.approx(502.6667 + half, abs=2e-3)
    assert arm["interval"]["confidence"] == 0.95
    assert (arm["n"], arm["ttft_max_ms"], arm["ttft_p99_ms"]) == (6, 506, None)
    gains = [1 - (98.899 + extra) / (501 + extra) for extra in (0, 1, 4)]
    assert summary["cells"][2]["gain"] == pytest.approx(sum(gains) / 3, abs=1e-4)
    assert [one["ttft_p50_ms"]["recompute"] for one in summary["cells"][2]["by_seed"]] == [
        501, 502, 505,
    ]  # fmt: skip
    assert [one["cell"] for one in summary["cells"][2]["by_seed"]] == [2, 6, 10]
    statistics = summary["statistics"]
    assert (statistics["unit"], statistics["seeds"]) == ("seed", [1, 2, 3])
    assert "means over the 3 seeds" in statistics["spread"]["said"]


def test_seeds_are_compared_in_pairs(tmp_path: Path) -> None:
    found = summarise(seeded(3).write(tmp_path))["statistics"]["differences"]
    by_key = {(tuple(one["arms"]), tuple(one["cells"])): one for one in found}
    # The same 1 ms farther away with each seed, though the seeds differ by more than that.
    assert by_key[("remote_hit",), (0, 1)]["outcome"] == "differs"
    assert by_key[("remote_hit",), (0, 1)]["samples"] == [3, 3]
    assert by_key[("recompute",), (0, 1)]["p"] == 1.0


def test_every_seed_must_keep_what_is_promised(tmp_path: Path) -> None:
    run = seeded([5, 6])
    run.row("remote-hit-5-m1")["output_ids"] = [1, 2, 3, 4]
    summary = summarise(run.write(tmp_path / "wrong"))
    assert summary["verdict"] == "fail"
    assert [cell["wrong"] for cell in summary["cells"]] == [0, 1, 0, 0]
    run = seeded([5, 6])
    run.cells[5]["links"][0].update(ok=False, problems=["slow"])
    summary = summarise(run.write(tmp_path / "void"))
    assert summary["verdict"] == "invalid"
    assert [cell["valid"] for cell in summary["cells"]] == [True, False, True, True]
    assert summary["cells"][1]["problems"] == ["seed 6: link a-b, before the cell: slow"]
    assert summary["cells"][1]["gain"] is None


@pytest.mark.slow
def test_every_table_has_a_row_per_point(tmp_path: Path) -> None:
    summary = write_all_of(seeded([1, 5]), tmp_path)
    assert len(to_csv(summary).splitlines()) == 5
    assert "seed" not in to_csv(summary).splitlines()[0]
    assert "· seeds 1, 5 · 2 requests per seed, cell and arm" in to_markdown(summary)
    console = table_console()
    with console.capture() as captured:
        print_run(summary, console)
    assert "seeds 1, 5" in captured.get()
    assert (tmp_path / "plots" / "ttft_vs_km.svg").exists()


def write_all_of(run: Run, folder: Path) -> dict[str, Any]:
    run.write(folder)
    for name in ("a", "b"):
        (folder / "records" / f"history-{name}-0.jsonl").write_text("")
    (folder / "plots").mkdir()
    return write_all(folder)


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        (1, "seeds"),
        ([3], "seeds: must be at least two, got [3]; one is set with seed"),
        ([3, 3], "seeds: one is listed twice"),
        ([-1, 2], "seeds"),
    ],
)
def test_what_is_no_choice_of_seeds_is_refused(seeds: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario({**SCENARIO, "seeds": seeds})
    assert said in caught.value.message


def test_seeds_on_the_command_line() -> None:
    assert parse_seeds("1-4") == "[1, 2, 3, 4]"
    assert parse_seeds("1,4-5, 9") == "[1, 4, 5, 9]"
    assert parse_seeds("5") == "5"
    for text in ("", "a", "3-1", "1-", "1--2", "0-5000"):
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(text)


def test_means_and_intervals_over_seeds() -> None:
    assert mean([1.0, None]) is None
    assert mean([]) is None
    assert mean([1.0, 2.0]) == 1.5
    assert student_interval([5]) is None
    interval = student_interval([10, 12])
    # t with one degree of freedom is 12.706, s is 1.414, over the root of 2: 12.706.
    assert interval is not None
    assert (interval.low_ns, interval.high_ns) == (-2, 24)
