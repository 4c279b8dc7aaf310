"""Joules of a drill: its sites' busy times, each counted once however many requests share them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handwritten_drill import Drill
from histories import MS, ev

from geokv.measure.checker.exchanges import Exchange
from geokv.measure.drill.summary import summarise_drill
from geokv.measure.energy.constants import constants
from geokv.measure.energy.fleet import fleet, length
from geokv.report.history import merge_history
from geokv.report.run_folder import write_all
from geokv.scenario.energy import Energy

SPANS = ("queue", "lookup", "fetch", "completion", "load", "prefill", "first_byte")


def asked(
    name: str, site: str, sent_ms: float, waits_ms: float, prefill_ms: float, done_ms: float,
    wire_bytes: int = 0,
) -> Exchange:  # fmt: skip
    spans = dict.fromkeys((f"{span}_ns" for span in SPANS), 0)
    spans |= {"queue_ns": round(waits_ms * MS), "prefill_ns": round(prefill_ms * MS)}
    base = {"request_id": name, "tenant": "t0"}
    answer = ev(done_ms, "answer", site, **base, status="ok", spans=spans,
                first_ns=round((sent_ms + waits_ms + prefill_ms) * MS), output_ids=[1, 2],
                done_ns=round(done_ms * MS), wire_bytes=wire_bytes)  # fmt: skip
    return Exchange(ev(sent_ms, "request", site, **base), (answer,))


def test_times_that_overlap_count_once() -> None:
    assert length([]) == 0
    assert length([(5, 9), (0, 3)]) == 7
    assert length([(0, 10), (2, 4), (8, 12), (20, 21)]) == 13
    assert length([(0, 5), (5, 6)]) == 6


def test_a_fleet_by_hand() -> None:
    rows = [
        # At b: prefill 10-110 and 60-160, decode to 210 and to 400.
        asked("r0", "b", 0, 10, 100, 210, wire_bytes=1000),
        asked("r1", "b", 50, 10, 100, 400),
        # At a: prefill 900-950, decode to 1000.
        asked("r2", "a", 900, 0, 50, 1000),
    ]
    refused = Exchange(ev(70, "request", "b", request_id="r3", tenant="t0"), ())
    one = fleet([*rows, refused], sites=3, links=2, hops={"b": 2}, byte_scale=4)
    assert one is not None
    assert (one.duration_s, one.answered, one.output_tokens) == (1.0, 3, 6)
    assert one.prefill_s == pytest.approx(0.150 + 0.050)
    assert one.decode_s == pytest.approx(0.240 + 0.050)
    assert one.idle_s == pytest.approx(3 - 0.49)
    assert one.bits == 1000 * 4 * 8 * 2
    numbers = constants(Energy(), {})
    machines_j = 70 * 2.51 + 700 * 0.2 + 300 * 0.29 + 70 * 3 + 2 * 19 * 2 + 150e-12 * 64_000
    assert one.energy_j(numbers) == pytest.approx(1.5 * machines_j)
    assert one.energy_consumed_kwh(numbers) == pytest.approx(1.5 * machines_j / 3.6e6)
    assert one.emissions_g(numbers) == pytest.approx(481 * 1.5 * machines_j / 3.6e6)
    clean = numbers.at("carbon_intensity_g_per_kwh", 30)
    assert one.energy_j(clean) == one.energy_j(numbers)
    assert one.emissions_g(clean) == pytest.approx(30 * 1.5 * machines_j / 3.6e6)
    assert fleet([refused], 3, 2, {}, 4) is None


def with_spans(drill: Drill) -> Drill:
    """The hand-written drill, whose answers took 10 ms of prefill and 2 of decode."""
    for events in drill.cells.values():
        for event in events:
            if event["op"] != "answer":
                continue
            spans = dict.fromkeys((f"{span}_ns" for span in SPANS), 0)
            spans["prefill_ns"] = 10 * MS
            spans["fetch_ns"] = event["ttft_ns"] - 10 * MS
            event.update(spans=spans)
    return drill


def energy_of(drill: Drill, folder: Path) -> dict[str, Any]:
    merge_history(drill.write(folder))
    found: dict[str, Any] = summarise_drill(folder)["energy"]
    return found


def test_the_summary_of_a_drill(tmp_path: Path) -> None:
    energy = energy_of(with_spans(Drill()), tmp_path)
    assert energy["grade"] == "constants"
    (one,) = energy["fleets"]  # of the control nothing is said
    # 60 requests one after the other: the last is sent after 2950 ms and takes 20.
    assert one["duration_s"] == 2.97
    # The last request that missed computes from 63 to 73 ms after it was sent; the one after it,
    # which hits, from 58 to 68, and answers from 68 to 70: 5 and 2 ms that count once.
    assert (one["answered"], one["prefill_s"], one["decode_s"]) == (60, 0.595, 0.118)
    idle_s = 2 * 2.97 - 0.713
    links_j = 2 * 19 * 2.97 + one["parts_j"]["transfer"]
    machines_j = 70 * idle_s + 700 * 0.595 + 300 * 0.118 + 70 * 2 * 2.97 + links_j
    assert one["energy_j"] == pytest.approx(1.5 * machines_j, abs=2e-3)
    assert one["j_per_answer"] == pytest.approx(1.5 * machines_j / 60, abs=1e-3)
    assert one["energy_consumed_kwh"] == pytest.approx(1.5 * machines_j / 3.6e6, rel=1e-6)
    assert one["emissions_g"] == pytest.approx(481 * 1.5 * machines_j / 3.6e6, rel=1e-6)
    assert energy["tornado"]["of"] == "J per answer"
    assert energy["tornado"]["bars"][0]["constant"] == "host_w"


def test_a_void_cell_has_no_joules(tmp_path: Path) -> None:
    drill = with_spans(Drill())
    timers = {"timers": 100, "late": 6, "worst_ns": 2_000_000}
    more = {"compute": "charged", "timers": timers, "late_ns": {}}
    drill.cells[0].append(ev(8000, "machine", **more))
    assert energy_of(drill, tmp_path)["fleets"] == []


@pytest.mark.slow
def test_the_page_of_a_drill_shows_it(tmp_path: Path) -> None:
    (one,) = write_all(with_spans(Drill()).write(tmp_path))["energy"]["fleets"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "J per answer" in page and "all sites gCO₂e" in page
    shown = f"<td>{one['emissions_g']:.3g}</td><td>{1000 * one['emissions_g'] / 60:.3g}</td>"
    assert shown in page.replace("\n", "")
    assert "Counted with PUE 1.5 and 481 gCO₂e per kWh at every site." in page
    assert (tmp_path / "plots" / "tornado.svg").is_file()


def test_a_drill_without_spans_says_no_joules(tmp_path: Path) -> None:
    energy = energy_of(Drill(), tmp_path)
    assert (energy["fleets"], energy["tornado"]) == ([], None)
