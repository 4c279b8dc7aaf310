"""Whole runs, right and spoilt: what the summary says of each."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from handwritten import MS, SCENARIO, TRANSFER_NS, WIRE_BYTES, Run

from geokv.errors import RunError
from geokv.measure import summarise


def judged(summary: dict[str, Any], name: str) -> tuple[bool | None, str]:
    (item,) = [item for item in summary["expectations"] if item["name"] == name]
    return item["ok"], item["said"]


def test_a_good_run_passes_with_the_numbers_worked_out_by_hand(tmp_path: Path) -> None:
    summary = summarise(Run().write(tmp_path))
    assert (summary["verdict"], summary["exit_code"], summary["reasons"]) == ("pass", 0, [])
    assert all(item["ok"] for item in summary["expectations"])
    zero, _, far, out = summary["cells"]
    remote = far["arms"]["remote_hit"]
    # p50 of two samples is the lower: repeat 0, queue 0.
    # 1 (lookup) + 1 + 85.899346 (fetch) + 10 (prefill) + 1 (first byte)
    assert remote["ttft_p50_ms"] == 98.899
    assert remote["ttft_p99_ms"] is None, "two samples carry none"
    assert (remote["ttft_max_ms"], remote["ttft_mean_ms"]) == (99.899, 99.399)
    assert (remote["mean_interval"], remote["p99_interval"]) == (None, None)
    assert remote["interval"] == {
        "of": "p50",
        "low_ms": 98.899,
        "high_ms": 99.899,
        "confidence": 0.5,
    }
    assert remote["bound_ms"] == 96.899
    assert remote["ratio_to_bound"] == round(98_899_346 / 96_899_346, 4) == 1.0206
    assert remote["spans_ms"]["fetch"] == 86.899
    assert remote["bytes"] == WIRE_BYTES
    assert remote["bytes_stands_for"] == 2**30
    assert far["arms"]["recompute"]["ttft_p50_ms"] == 501.0
    gain_0 = 1 - (11 * MS + TRANSFER_NS) / (501 * MS)
    gain_100 = 1 - (13 * MS + TRANSFER_NS) / (501 * MS)
    assert zero["gain"] == round(gain_0, 4)
    assert far["gain"] == round(gain_100, 4)
    assert far["gain_change_percent"] == round(100 * (gain_0 - gain_100) / gain_0, 3) == 0.495
    assert far["gain_change_points"] == round(100 * (gain_100 - gain_0), 3)
    assert zero["gain_change_percent"] == 0
    assert far["rtt_asked_ms"] == 1.0
    assert far["rtt_measured_ms"] == 1.002  # mean of +1 and +3 µs
    assert far["goodput_ratio"] == 0.98  # the worse of 0.99 and 0.98
    assert (far["wrong"], far["compared"], far["first_logits_diff"]) == (0, 6, 0.0)
    assert out["out_of_range"] and out["km"] == 600


def test_energy_proxy_by_hand(tmp_path: Path) -> None:
    summary = summarise(Run().write(tmp_path))
    arms = summary["cells"][2]["arms"]
    # recompute, mean of T = 531 and 532 ms: 70 W all the time, 630 W more for 500 ms of
    # prefill, 230 W more for 30 ms of decode
    assert arms["recompute"]["energy_j"] == round(70 * 0.5315 + 630 * 0.5 + 230 * 0.03, 3)
    parts = arms["remote_hit"]["energy_parts_j"]
    total_s = (98_899_346 + 99_899_346) / 2e9 + 0.03
    assert parts["gpu"] == round(70 * total_s + 630 * 0.01 + 230 * 0.03, 3)
    assert parts["optics"] == round(2 * 19 * total_s, 3)
    assert parts["transfer"] == round(150e-12 * 2**30 * 8, 3)
    assert arms["local_hit"]["energy_parts_j"]["optics"] == 0
    assert summary["energy"]["kind"] == "proxy"
    assert all(entry["source"] for entry in summary["energy"]["constants"].values())


def test_watts_come_from_the_profile_unless_the_scenario_sets_them(tmp_path: Path) -> None:
    run = Run({**SCENARIO, "energy": {"gpu": {"prefill_w": 500}}})
    run.manifest["profile"] = {
        "watts": {"idle": 50, "prefill": 650, "decode": 200, "range": "idle 40-80", "source": "me"}
    }
    constants = summarise(run.write(tmp_path))["energy"]["constants"]
    assert constants["idle_w"] == {
        "value": 50,
        "low": 40,
        "high": 80,
        "source": "GPU profile: me",
    }
    assert constants["prefill_w"]["value"] == 500
    assert constants["decode_w"]["value"] == 200
    run.manifest["profile"] = {"watts": {"idle": "warm"}}
    with pytest.raises(RunError, match=r"profile\.watts\.idle"):
        summarise(run.write(tmp_path))


def test_one_wrong_token_fails_the_run_and_is_named(tmp_path: Path) -> None:
    run = Run()
    run.row("remote-hit-2-m1")["output_ids"] = [11, 20, 99, 40]
    summary = summarise(run.write(tmp_path))
    assert (summary["verdict"], summary["exit_code"]) == ("fail", 1)
    ok, said = judged(summary, "answers_equal")
    assert ok is False
    assert said == (
        "1 of 24 answers are wrong: remote-hit-2-m1 (remote-hit, repeat 1): "
        "token 2 is 99, recomputed 30"
    )
    assert [cell["wrong"] for cell in summary["cells"]] == [0, 0, 1, 0]


def test_a_shorter_answer_is_wrong_and_so_is_one_out_of_range(tmp_path: Path) -> None:
    run = Run()
    run.row("local-hit-3-w0")["output_ids"] = [10, 20]
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "fail"
    assert "token 2 is nothing, recomputed 30" in judged(summary, "answers_equal")[1]


def test_logits_apart_fail(tmp_path: Path) -> None:
    run = Run()
    run.row("remote-hit-1-m0")["first_logits"] = [0.5, -0.25, 1.0003]
    summary = summarise(run.write(tmp_path))
    assert judged(summary, "first_logits_within") == (
        False,
        "largest difference 0.0003 > 0.0001",
    )
    assert summary["cells"][1]["first_logits_diff"] == 0.0003
    run.row("remote-hit-1-m0")["first_logits"] = [0.5]
    assert judged(summarise(run.write(tmp_path)), "first_logits_within")[0] is False


def test_logits_that_were_not_kept_are_not_equal(tmp_path: Path) -> None:
    run = Run()
    run.row("remote-hit-1-m0")["first_logits"] = []
    summary = summarise(run.write(tmp_path))
    assert judged(summary, "first_logits_within") == (
        None,
        "1 answers have no first-token logits to compare: remote-hit-1-m0",
    )
    assert (summary["verdict"], judged(summary, "answers_equal")[0]) == ("unknown", True)
    # One that is wrong is not hidden behind one that is not known.
    run.row("remote-hit-2-m0")["first_logits"] = [0.5, -0.25, 1.0003]
    assert judged(summarise(run.write(tmp_path)), "first_logits_within")[0] is False
    for row in run.requests:
        row["first_logits"] = []
    assert judged(summarise(run.write(tmp_path)), "first_logits_within")[0] is None


def test_a_missing_repeat_is_unknown(tmp_path: Path) -> None:
    run = Run()
    run.requests.remove(run.row("remote-hit-2-m1"))
    summary = summarise(run.write(tmp_path))
    assert (summary["verdict"], summary["exit_code"]) == ("unknown", 4)
    assert judged(summary, "complete") == (None, "4 of 4 cells and 23 of 24 requests are recorded")


def test_a_missing_cell_is_unknown(tmp_path: Path) -> None:
    run = Run()
    run.cells.pop()
    run.requests = [row for row in run.requests if row["cell"] != 3]
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "unknown"
    assert summary["cells"][3]["arms"]["recompute"]["ttft_p50_ms"] is None
    assert summary["cells"][3]["valid"] is False


def test_no_records_at_all_are_unknown(tmp_path: Path) -> None:
    run = Run()
    run.cells, run.requests = [], []
    assert summarise(run.write(tmp_path))["verdict"] == "unknown"


def test_a_failed_request_fails_the_run_with_its_error(tmp_path: Path) -> None:
    run = Run()
    run.row("remote-hit-0-m0").update(
        status="error", error="deadline of 30 s passed", first_ns=None, ttft_ns=None, spans=None
    )
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "fail"
    ok, said = judged(summary, "answered")
    assert ok is False and "deadline of 30 s passed" in said
    assert summary["cells"][0]["arms"]["remote_hit"]["failed"] == 1
    assert summary["cells"][0]["arms"]["remote_hit"]["n"] == 1


def test_spans_that_do_not_add_up_are_said(tmp_path: Path) -> None:
    run = Run()
    run.row("recompute-0-m0")["spans"]["prefill_ns"] -= 5 * MS  # 0.998 %: tolerated
    assert summarise(run.write(tmp_path))["verdict"] == "pass"
    run.row("recompute-0-m0")["spans"]["prefill_ns"] -= MS  # 1.2 %
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "fail"
    assert "recompute-0-m0 (recompute): spans differ" in judged(summary, "spans_add_up")[1]
    assert any("spans differ" in said for said in summary["warnings"])


def spoil_link(run: Run, cell: int) -> None:
    check = run.cells[cell]["links"][1]
    check.update(ok=False, problems=["RTT 1.2 ms is 20 % off the plan"])


def test_a_step_that_ended_before_it_began_is_said(tmp_path: Path) -> None:
    run = Run()
    spans = run.row("recompute-0-m0")["spans"]
    spans["queue_ns"] -= 20 * MS  # the sum is as before
    spans["prefill_ns"] += 20 * MS
    summary = summarise(run.write(tmp_path))
    assert judged(summary, "spans_add_up")[0] is False


def test_computing_that_outlasts_its_charge_voids_the_run(tmp_path: Path) -> None:
    run = Run()
    run.cells[1]["late_ns"] = {"a": 0, "b": 999_000}
    assert summarise(run.write(tmp_path / "in time"))["verdict"] == "pass"
    run.cells[1]["late_ns"] = {"a": 0, "b": 31 * MS}
    summary = summarise(run.write(tmp_path / "late"))
    assert summary["verdict"] == "invalid"
    assert "CPU-bound: site b: computing outlasted its charge by 31.0 ms" in summary["reasons"][0]
    assert summary["cells"][1]["valid"] is False
    assert judged(summary, "links_within_tolerance")[0] is True


def test_a_link_off_its_plan_voids_the_run(tmp_path: Path) -> None:
    run = Run()
    spoil_link(run, 2)
    run.row("remote-hit-1-m0")["output_ids"] = [1]
    summary = summarise(run.write(tmp_path))
    assert (summary["verdict"], summary["exit_code"]) == ("invalid", 3)
    cell = summary["cells"][2]
    assert cell["valid"] is False
    assert cell["gain"] is None and cell["gain_change_percent"] is None
    assert cell["arms"]["remote_hit"]["ratio_to_bound"] is None
    assert cell["problems"] == ["link a-b, after the cell: RTT 1.2 ms is 20 % off the plan"]
    # the wrong answer is not hidden behind the link
    assert any("answers_equal" in reason for reason in summary["reasons"])


def test_a_link_out_of_range_only_warns(tmp_path: Path) -> None:
    run = Run()
    spoil_link(run, 3)
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "pass"
    assert summary["cells"][3]["valid"] is False
    assert any("600 km" in said for said in summary["warnings"])


def test_a_link_that_was_not_checked_after_the_cell_is_no_valid_cell(tmp_path: Path) -> None:
    run = Run()
    run.cells[1]["links"].pop()
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "invalid"
    assert summary["cells"][1]["problems"] == ["link a-b was not checked after the cell"]


def test_a_silent_link_is_void_without_a_number(tmp_path: Path) -> None:
    run = Run()
    for check in run.cells[1]["links"]:
        check.update(rtt_measured_ns=None, goodput_measured_bps=None, ok=False)
        check.update(problems=["no probe came back"])
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "invalid"
    assert summary["cells"][1]["rtt_measured_ms"] is None
    assert summary["cells"][1]["goodput_ratio"] is None


def test_low_goodput_is_invalid_not_fail(tmp_path: Path) -> None:
    run = Run()
    run.cells[1]["links"][0]["goodput_measured_bps"] = 22_000_000_000
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "invalid"
    assert judged(summary, "goodput_ratio_at_least") == (
        False,
        "lowest ratio 0.917 < 0.95 at 50 km",
    )


def fetch_nothing(run: Run, *cells: int) -> None:
    for row in run.requests:
        if row["arm"] == "remote-hit" and row["cell"] in cells:
            row.update(source="none", wire_bytes=0, chunks_remote=0, cached_tokens=0)
            row.update(misses={"timeout": 1})


def test_a_run_that_fetched_nothing_cannot_pass(tmp_path: Path) -> None:
    run = Run()
    fetch_nothing(run, 0, 1, 2, 3)
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "fail"
    assert judged(summary, "remote_used") == (
        False,
        "sharing had no effect: 6 of 6 remote-hit requests fetched nothing (timeout 6)",
    )
    quiet = Run({**SCENARIO, "expect": {}})
    fetch_nothing(quiet, 0, 1, 2, 3)
    summary = summarise(quiet.write(tmp_path))
    assert summary["verdict"] == "unknown"
    assert any("sharing had no effect" in reason for reason in summary["reasons"])


def test_some_fallbacks_break_remote_used_and_warn(tmp_path: Path) -> None:
    run = Run()
    fetch_nothing(run, 1)
    summary = summarise(run.write(tmp_path))
    assert judged(summary, "remote_used")[0] is False
    assert any("50 km: 2 of 2 remote-hit requests fetched" in said for said in summary["warnings"])


@pytest.mark.parametrize(
    ("request_id", "changes"),
    [
        ("recompute-1-m0", {"cached_tokens": 256, "source": "device"}),
        ("local-hit-1-m0", {"source": "none", "cached_tokens": 0}),
        ("local-hit-1-m0", {"source": "remote", "wire_bytes": 5}),
    ],
)
def test_an_arm_served_otherwise_than_it_says_fails(
    tmp_path: Path, request_id: str, changes: dict[str, Any]
) -> None:
    run = Run()
    run.row(request_id).update(changes)
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "fail"
    assert judged(summary, "arms_as_named")[0] is False


def test_a_contradiction_inside_a_site_fails(tmp_path: Path) -> None:
    run = Run()
    run.cells[0]["integrity"]["b"] = "free 3 + cached 4 is not 8"
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "fail"
    assert "site b: free 3 + cached 4 is not 8" in judged(summary, "integrity")[1]


def slow(run: Run, cell: int, extra_ms: int) -> None:
    for row in run.requests:
        if row["arm"] == "remote-hit" and row["cell"] == cell:
            row["spans"]["fetch_ns"] += extra_ms * MS
            for name in ("ttft_ns", "first_ns", "done_ns"):
                row[name] += extra_ms * MS


def test_a_slow_far_cell_breaks_gain_and_bound(tmp_path: Path) -> None:
    run = Run()
    slow(run, 2, 40)
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "fail"
    # (2 + 40) ms of 501 - 96.899
    assert judged(summary, "gain_change_percent_at_most") == (
        False,
        "gain changes by 10.39 % > 8 % at 100 km",
    )
    assert judged(summary, "ratio_to_bound_at_most") == (
        False,
        "ratio 1.433 > 1.10 at 100 km",
    )


def test_no_gain_at_zero_km_breaks_the_expectation(tmp_path: Path) -> None:
    run = Run()
    slow(run, 0, 450)
    ok, said = judged(summarise(run.write(tmp_path)), "gain_change_percent_at_most")
    assert ok is False and "gains nothing even at 0 km" in said


def test_a_narrowed_sweep_leaves_its_expectations_untested(tmp_path: Path) -> None:
    narrowed = copy.deepcopy(SCENARIO)
    narrowed["expect"] = {}
    narrowed["sweep"] = [{"path": "links.a-b.km", "values": [50]}]
    run = Run(narrowed)
    run.scenario = run.scenario.model_copy(update={"expect": Run().scenario.expect})
    run.manifest["scenario_hash"] = run.scenario.hash
    summary = summarise(run.write(tmp_path))
    assert summary["verdict"] == "unknown"
    assert "not tested" in judged(summary, "ratio_to_bound_at_most")[1]


def test_two_equal_runs_give_the_same_summary(tmp_path: Path) -> None:
    one, other = Run(), Run()
    for row in other.requests:  # the same run, an hour later
        for name in ("sent_ns", "first_ns", "done_ns"):
            row[name] += 3_600_000_000_000
    assert summarise(one.write(tmp_path / "1")) == summarise(other.write(tmp_path / "2"))


def test_preparing_is_neither_counted_nor_hidden(tmp_path: Path) -> None:
    run = Run()
    prepare = {**run.requests[0], "arm": "prepare", "request_id": "p", "output_ids": [7]}
    run.requests.append(prepare)
    assert summarise(run.write(tmp_path))["cells"] == summarise(Run().write(tmp_path))["cells"]
    prepare.update(status="error", error="no free block")
    summary = summarise(run.write(tmp_path))
    assert summary["warnings"] == ["cell 0: preparing failed: no free block"]
