"""A swept drill that compares fetching with computing: kinds, outages, and where to stop."""

from __future__ import annotations

import copy
import csv
import io
from pathlib import Path
from typing import Any

import pytest
from handwritten_drill import START_MS, Drill
from handwritten_drill_sweep import LOAD, probe, sweep, swept_drill
from histories import ev

from geokv.measure.drill.stop import crossing, faster_above, formula
from geokv.measure.drill.summary import summarise_drill
from geokv.report.console import print_run, table_console
from geokv.report.drill_csv import to_drill_csv
from geokv.report.history import merge_history
from geokv.report.pivot import pivots
from geokv.report.run_folder import read_summary, write_all

PLAIN = {
    "asked", "answered", "remote", "ttft_p50_ms", "ttft_p99_ms", "ttft_max_ms", "goodput_gbps",
}  # fmt: skip


@pytest.fixture
def drill() -> Drill:
    return swept_drill()


def summary_of(drill: Drill, tmp_path: Path) -> dict[str, Any]:
    merge_history(drill.write(tmp_path))
    return summarise_drill(tmp_path)


def test_kinds_are_told_apart_over_the_drill_and_while_a_fault_lasts(drill, tmp_path):
    cell = summary_of(drill, tmp_path)["cells"][0]
    # Six of the even requests, 20 to 30, lost their fetch to the cut.
    assert {name: value for name, value in cell["kinds"]["cached"].items() if name in PLAIN} == {
        "asked": 30, "answered": 30, "remote": 24, "ttft_p50_ms": 18.0, "ttft_p99_ms": None,
        "ttft_max_ms": 73.0,
        # 1000 bytes in 4 ms, divided by four.
        "goodput_gbps": 0.008,
    }  # fmt: skip
    assert cell["kinds"]["cold"]["remote"] == 0
    assert cell["kinds"]["cold"]["ttft_p50_ms"] == cell["kinds"]["cold"]["ttft_max_ms"] == 73.0
    (cut,) = [one for one in cell["faults"] if one["name"] == "cut"]
    # Those sent from 1003 to 1504 ms, 21 to 30, and 20, which had no token when it was cut.
    kinds = cut["during"]["kinds"]
    assert kinds["cached"].keys() == PLAIN, "of one outage no interval is said"
    assert [(kinds[one]["asked"], kinds[one]["remote"]) for one in kinds] == [(6, 0), (5, 0)]
    # Number 32, sent at 1600 ms, has its first token after 18 ms.
    assert cut["during"]["first_remote_ms"] == pytest.approx(1618 - 1003)


def test_the_load_at_which_to_stop_is_found_for_each_line(drill, tmp_path):
    stops = summary_of(drill, tmp_path)["stops"]
    assert [one["settings"] for one in stops] == [{"links.a-b.km": 0}, {"links.a-b.km": 50}]
    assert [one["cells"] for one in stops] == [[0, 1], [2, 3]]
    for one in stops:
        # 1/(1 - L) from 1 to 5 while the gap goes from -55 to +80 ms.
        assert one["median"] == pytest.approx(1 - 1 / (1 + 4 * 55 / 135), abs=1e-4)
        # Already the requests that the cut met take as long as computing, and no longer.
        assert one["slowest"] == pytest.approx(0, abs=1e-4)
        assert one["p99_carried"] is False
        assert one["formula"] == pytest.approx(55 / (55 + 8), abs=1e-4)
        assert one["ours"] is True


def test_no_load_that_has_a_line_of_its_own_tells_where_to_stop(tmp_path):
    data = sweep()
    data["topology"] = copy.deepcopy(data["topology"])
    data["topology"]["sites"]["c"] = {}
    data["topology"]["links"]["a-c"] = {"km": 50}
    data["timeline"] = [{**LOAD, "link": "a-c"}]
    drill = Drill(data)
    for events in drill.cells.values():
        for event in events:
            probe(event, 18)
    (first, _) = summary_of(drill, tmp_path)["stops"]
    assert (first["ours"], first["median"], first["formula"]) == (False, None, None)


def test_a_crossing_is_between_samples_or_at_the_first():
    assert crossing([0, 0.5], [-1, 1]) == pytest.approx(1 / 3)
    assert crossing([0.2, 0.5], [3, 9]) == 0.2
    assert crossing([0, 0.5], [-2, -1]) is None
    assert crossing([0, 0.5, 0.8], [-1, None, 1]) == pytest.approx(2 / 3)
    assert crossing([0.5, 1.0], [-1, 4]) == 0.5
    assert crossing([], []) is None
    assert formula(100, 60, 20) == pytest.approx(2 / 3)
    assert formula(60, 100, 20) is None


CHANGE = {"of": "ttft", "along": "timeline.load.share", "start": 0, "end": 0.8}


@pytest.mark.parametrize(
    ("change", "ok", "said"),
    [
        ({"at_least": 8}, True, "ttft of what is fetched from timeline.load.share 0 to 0.8: × 8.5"),
        ({"at_least": 9}, False, "× 8.5 < 9"),
        ({"at_most": 1.01, "where": {"links.a-b.km": 50}}, False, "× 8.5 > 1.01 (a-b 50 km"),
        ({"of": "goodput", "at_most": 1}, True, "× 1 ≤ 1"),
        ({"of": "ttft_p99", "at_least": 1}, None, "not tested: ttft_p99 of what is fetched"),
    ],
)
def test_what_is_promised_of_cells_against_each_other_decides(change, ok, said, tmp_path):
    made = swept_drill(expect={"changes": [{**CHANGE, **change}]})
    summary = summary_of(made, tmp_path)
    (line,) = [one for one in summary["expectations"] if one["name"] == "expect:changes.0"]
    assert line["ok"] is ok and said in line["said"]
    reasons = [one for one in summary["reasons"] if one.startswith("expect:changes.0")]
    assert bool(reasons) is (ok is not True)


def test_a_load_above_the_crossing_at_which_fetching_is_faster_is_said(drill, tmp_path):
    assert faster_above([0, 0.5, 0.8], [3, -9, 4], 0) == (0.5,)
    assert faster_above([0, 0.5, 0.8], [-1, None, 4], 0.6) == ()
    assert faster_above([0, 0.5], [-2, -1], None) == ()
    # On the empty line, and nowhere else, fetching takes longer than computing.
    for cell in drill.scenario.cells():
        for event in drill.cells[cell.index]:
            probe(event, 80 if cell.settings["timeline.load.share"] == 0 else 60)
    summary = summary_of(drill, tmp_path)
    assert [one["faster_again"] for one in summary["stops"]] == [[0.8], [0.8]]
    assert "0.00, but faster at 0.80" in pivots(summary)[-1].rows[0]


def test_every_form_shows_the_sweep(drill, tmp_path):
    write_all(drill.write(tmp_path))
    summary = read_summary(tmp_path)
    page = (tmp_path / "table.md").read_text(encoding="utf-8")
    (head,) = [line for line in page.splitlines() if "goodput" in line]
    assert "cut: fetch p50 ms" in head and "load: fetch" not in head
    (row,) = [line for line in page.splitlines() if line.startswith("| 0.8 | 50 |")]
    assert "| 60 | 60 | 153.00 | – | 153.00 | 73.00 | – | 73.00 |" in row and "| 0/6 |" in row
    assert "| 50 | 0.62 | – | 0.00 | 0.87 |" in page
    stops = pivots(summary)[-1]
    assert stops.head == ["a-b km", "median", "p99", "slowest", "on paper"] and len(stops.rows) == 2
    console = table_console()
    with console.capture() as captured:
        print_run(summary, console)
    assert "Where to stop fetching" in captured.get() and "By load" in captured.get()
    column = list(csv.DictReader(io.StringIO(to_drill_csv(summary))))[1]
    assert (column["cached_ttft_p50_ms"], column["cut_cached_remote"]) == ("153.0", "0")
    assert {path.name for path in (tmp_path / "plots").iterdir()} >= {"by_load.svg", "by_load.png"}


def test_nothing_is_promised_of_void_cells(tmp_path):
    made = swept_drill(expect={"changes": [{**CHANGE, "at_least": 8}]})
    for cell in made.cells:
        machine_behind(made, cell)
    summary = summary_of(made, tmp_path)
    (line,) = [one for one in summary["expectations"] if one["name"] == "expect:changes.0"]
    assert line["ok"] is None and summary["verdict"] == "invalid"


def links_off(drill, cell):
    drill.of("links", cell)[0]["ok"] = False


def machine_behind(drill, cell):
    timers = {"timers": 100, "late": 6, "worst_ns": 2_000_000}
    more = {"compute": "charged", "timers": timers, "late_ns": {}}
    drill.cells[cell].append(ev(START_MS, "machine", **more))


@pytest.mark.parametrize("spoil", [links_off, machine_behind])
def test_a_void_cell_has_no_number_and_no_part_in_where_to_stop(spoil, drill, tmp_path):
    spoil(drill, 1)
    summary = summary_of(drill, tmp_path)
    assert [one["cells"] for one in summary["stops"]] == [[0], [2, 3]]
    assert summary["stops"][0]["median"] is None
    assert pivots(summary)[0].rows[0][-1] == "void"
    row = list(csv.DictReader(io.StringIO(to_drill_csv(summary))))[1]
    assert (row["cached_ttft_p50_ms"], row["cached_goodput_gbps"], row["valid"]) == ("", "", "no")
