"""Whole drills, right and spoilt: what the summary says of each."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from handwritten_drill import SCENARIO, Drill
from histories import MS, fault, fetch, history, life, links, lost, request, serve, store, use
from typer.testing import CliRunner

from geokv.cli import app
from geokv.drills.hunt import counts
from geokv.drills.suite import Ended, Task
from geokv.errors import RunError
from geokv.measure.checker import History
from geokv.measure.checker.history import load_histories
from geokv.measure.drill.fates import fates
from geokv.measure.drill.shown import brief
from geokv.measure.drill.soundness import examine
from geokv.measure.drill.summary import summarise_drill
from geokv.report.console import print_run, table_console
from geokv.report.drill_csv import to_drill_csv
from geokv.report.drill_words import cell_row, cell_titles
from geokv.report.history import merge_history
from geokv.report.run_folder import read_summary, write_all
from geokv.report.sheet.content import drill_cards
from geokv.report.sheet.words import words_of


def summary_of(drill: Drill, tmp_path: Path) -> dict[str, Any]:
    merge_history(drill.write(tmp_path))
    return summarise_drill(tmp_path)


def judged(summary: dict[str, Any], name: str) -> tuple[bool | None, str]:
    (item,) = [item for item in summary["expectations"] if item["name"] == name]
    return item["ok"], item["said"]


def promising(**changes: Any) -> dict[str, Any]:
    scenario = copy.deepcopy(SCENARIO)
    scenario["timeline"][0]["expect"] |= changes
    return scenario


def test_a_good_drill_passes_with_the_numbers_worked_out_by_hand(tmp_path):
    summary = summary_of(Drill(), tmp_path)
    assert (summary["verdict"], summary["exit_code"], summary["reasons"]) == ("pass", 0, [])
    cell, control = summary["cells"]
    assert (cell["verdict"], cell["control"]) == ("pass", False)
    assert (control["verdict"], control["control"]) == ("fails as it must", True)
    # Lost are requests 20 to 31: ten while it was cut, two by the back-off after.
    assert cell["fates"]["requests"] == {
        "remote": 48, "local": 0, "recomputed": 12, "refused": 0, "failed": 0, "wrong": 0,
        "unanswered": 0,
    }  # fmt: skip
    assert cell["fates"]["fetches"] == {
        "served": 48, "unused": 0, "retried": 0, "recomputed": 12, "failed": 0, "wrong": 0
    }  # fmt: skip
    assert control["fates"]["fetches"]["wrong"] == 1
    assert (cell["requests"], cell["answered"], cell["hit_rate"]) == (60, 60, 0.8)
    assert (cell["ttft_p50_ms"], cell["ttft_p99_ms"], cell["ttft_max_ms"]) == (18.0, None, 73.0)
    assert (cell["bytes"], cell["misses"]) == (48_000, {"timeout": 12})
    (cut,) = cell["faults"]
    assert (cut["took_effect_ms"], cut["healed_ms"]) == (1003.0, 1504.0)
    recovery = cut["recovery"]
    # Request 20 was sent at 1000 ms and its fetch given up 50 ms later.
    assert recovery["detected"]["ms"] == 47.0
    assert recovery["rerouted"]["ms"] is None
    # Request 31, sent at 1550 ms, is recomputed in 73; 32, sent at 1600, is a hit again in 18.
    assert recovery["first_good"]["ms"] == 1618 - 1504
    assert recovery["hit_rate_back"]["ms"] == recovery["ttft_back"]["ms"] == 1618 - 1504
    assert recovery["hit_rate_back"]["n"] == 20
    assert recovery["fetches_lost"] == 12
    # Before are requests 0 to 19; 20, which had no token when it was cut, to 30 met the fault.
    (site,) = cell["sites"]
    assert site["site"] == "b"
    parts = [site[name] for name in ("before", "during", "after")]
    assert [(one["asked"], one["ttft_p50_ms"], one["ttft_max_ms"]) for one in parts] == [
        (20, 18.0, 18.0),
        (11, 73.0, 73.0),
        (29, 18.0, 73.0),
    ]
    assert judged(summary, "control:corrupt")[0] is True
    assert "skip-verify" in " ".join(summary["notes"])


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [
        ("detected_within", "46ms", "47.000 ms > 46 ms"),
        ("first_good_within", "113ms", "114.000 ms > 113 ms"),
        ("hit_rate_back_within", "113ms", "114.000 ms > 113 ms"),
        ("ttft_back_within", "113ms", "114.000 ms > 113 ms"),
        ("fetches_lost_at_most", 11, "12 lost > 11"),
        ("fetches_lost_at_least", 13, "12 lost < 13"),
        ("rerouted_within", "1s", "never: no fetch came before it had healed"),
    ],
)
def test_a_promise_of_an_event_that_is_not_kept_fails_the_drill(name, limit, said, tmp_path):
    summary = summary_of(Drill(promising(**{name: limit})), tmp_path)
    ok, words = judged(summary, f"expect:cut.{name}")
    assert ok is False and words.startswith(said)
    assert (summary["verdict"], summary["exit_code"]) == ("fail", 1)


@pytest.mark.parametrize(
    ("promise", "line", "said"),
    [
        ({"answered": 1.0}, "expect:answered", "0.9833 < 1 (n = 60)"),
        ({"hit_rate_at_least": 0.9}, "expect:hit_rate_at_least", "0.8136 < 0.9 (n = 59)"),
        (
            {"ttft_p99_at_most": "70ms"},
            "expect:ttft_p99_at_most",
            "the slowest: 73.000 ms > 70 ms (n = 59)",
        ),
        ({"refused_at_least": 1}, "expect:refused_at_least", "0 requests < 1"),
        (
            {"ttft_rise_percent_at_most": {"b": 305}},
            "expect:ttft_rise_percent_at_most.b",
            "+305.56 % > 305 %: median 18.000 → 73.000 ms, slowest 18.000 → 73.000 ms (n = 20, 11)",
        ),
        ({"misses_at_least": {"corrupt": 1}}, "expect:misses_at_least.corrupt", "0 misses < 1"),
        ({"misses_at_most": {"timeout": 5}}, "expect:misses_at_most.timeout", "12 misses > 5"),
    ],
)
def test_a_promise_of_the_drill_that_is_not_kept_fails_it(promise, line, said, tmp_path):
    drill = Drill({**SCENARIO, "expect": {"drill": promise}})
    drill.of("answer", request_id="r25")[0].update(status="error", error="the deadline passed")
    summary = summary_of(drill, tmp_path)
    assert judged(summary, line) == (False, said)
    assert summary["verdict"] == "fail"
    assert summary["warnings"] == ["as written: request r25 failed: the deadline passed"]


def test_a_rise_of_the_ttft_that_is_allowed_is_kept_and_one_that_nobody_saw_is_unknown(tmp_path):
    promise = {"ttft_rise_percent_at_most": {"b": 306}}
    kept = Drill({**SCENARIO, "expect": {"drill": promise}})
    line = "expect:ttft_rise_percent_at_most.b"
    assert judged(summary_of(kept, tmp_path / "kept"), line)[0] is True
    early = Drill({**SCENARIO, "expect": {"drill": promise}})
    early.of("fault", phase="took-effect")[0]["t_ns"] = 0
    said = "b answered nothing before the first fault, or nothing while one lasted"
    assert judged(summary_of(early, tmp_path / "early"), line) == (None, said)


def wrong_answer(drill: Drill) -> None:
    drill.of("answer", request_id="r3")[0]["output_ids"] = [7, 8, 0]


def off_its_plan(drill: Drill) -> None:
    wrong_answer(drill)
    drill.of("links", phase="after")[0].update(ok=False, problems=["rtt 2 ms"])


def hung(drill: Drill) -> None:
    drill.cells[0].remove(drill.of("answer", request_id="r40")[0])


def never_fired(drill: Drill) -> None:
    event = drill.of("fault", phase="took-effect")[0]
    event.update(phase="did-not-fire", evidence={"said": "the probe came back"})


def never_healed(drill: Drill) -> None:
    drill.cells[0].remove(drill.of("fault", phase="healed")[0])


def toothless(drill: Drill) -> None:
    for event in drill.of("use", cell=1):
        event["checksums"] = ["aa", "bb"]


def cut_short(drill: Drill) -> None:
    del drill.cells[1]


def unshared(drill: Drill) -> None:
    for event in drill.of("answer"):
        event["chunks_remote"] = 0
    drill.cells[0] = [event for event in drill.cells[0] if event["op"] != "use"]


def off_in_control(drill: Drill) -> None:
    drill.of("links", cell=1, phase="before")[0].update(ok=False, problems=["rtt 2 ms"])


def idle_control(drill: Drill) -> None:
    event = drill.of("fault", cell=1, phase="took-effect")[0]
    event.update(phase="did-not-fire", evidence={"said": "the probe came back"})


@pytest.mark.parametrize(
    ("spoil", "word", "reason"),
    [
        (wrong_answer, "fail", "answered-wrongly: request r3: token 2 is 0"),
        (off_its_plan, "invalid", "links: a-b after: rtt 2 ms"),
        (hung, "fail", "never-answered: request r40 to b got neither answer nor error"),
        (never_fired, "unknown", "fault-fired:cut: did not fire: the probe"),
        (never_healed, "unknown", "fault-fired:cut: was never seen to have healed"),
        (toothless, "unknown", "control:corrupt: the control did not fail"),
        (cut_short, "unknown", "the run did not get to the end of control"),
        (unshared, "unknown", "sharing-had-effect: sharing had no effect"),
        (off_in_control, "unknown", "control:corrupt: the control did not fail"),
        (idle_control, "unknown", "control:corrupt: the control shows nothing: fault-fired:cut"),
    ],
)
def test_what_is_spoilt_decides_the_verdict(spoil, word, reason, tmp_path):
    drill = Drill()
    spoil(drill)
    summary = summary_of(drill, tmp_path)
    assert summary["verdict"] == word
    assert any(said.startswith(reason) for said in summary["reasons"]), summary["reasons"]
    if spoil is off_its_plan:
        # A wrong token is never hidden behind a bad link, and no number of the cell counts.
        assert any("answered-wrongly" in said for said in summary["reasons"])
        assert not summary["cells"][0]["valid"]


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (toothless, "did not fail"),
        (cut_short, "unknown"),
        (off_in_control, "invalid"),
        (idle_control, "unknown"),
        (wrong_answer, "fails as it must"),
    ],
)
def test_a_control_is_never_said_to_have_passed(spoil, word, tmp_path):
    drill = Drill()
    spoil(drill)
    _, control = summary_of(drill, tmp_path)["cells"]
    assert control["verdict"] == word


def test_a_control_may_be_without_a_fault(tmp_path):
    """What it is about is then that without it nothing is broken, or something is."""
    drill = Drill({**SCENARIO, "control": {**SCENARIO["control"], "without": ["cut"]}})
    drill.cells[1] = [event for event in drill.cells[1] if event["op"] != "fault"]
    summary = summary_of(drill, tmp_path)
    assert judged(summary, "control:corrupt")[0] is True, summary["reasons"]


def test_wrong_means_requests_and_fetches_wherever_it_is_said(tmp_path):
    """A table, the card of the sheet, and the list of seeds that a hunt writes."""
    drill = Drill()
    wrong_answer(drill)
    drill.of("use", request_id="r5")[0]["checksums"] = ["aa", "b0"]
    summary = summary_of(drill, tmp_path)
    fates_of = summary["cells"][0]["fates"]
    assert (fates_of["requests"]["wrong"], fates_of["fetches"]["wrong"]) == (1, 2)
    head, row, _ = to_drill_csv(summary).splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["wrong"] == "3"
    assert cell_row(summary["cells"][0])[cell_titles().index("wrong")] == "3"
    cards = drill_cards(summary, words_of("en")).items
    assert [value for name, value, _ in cards if name == "wrong"] == ["3"]
    assert counts(Ended(Task("by-hand", drill.scenario), tmp_path, summary))["wrong"] == 3


def test_what_nobody_could_see_is_unknown_and_not_broken(tmp_path):
    drill = Drill()
    for event in drill.of("fault"):
        event["t_ns"] -= 1000 * MS
    summary = summary_of(drill, tmp_path)
    ok, said = judged(summary, "expect:cut.hit_rate_back_within")
    assert ok is None and "no request had ended before" in said
    assert judged(summary, "expect:cut.ttft_back_within")[0] is None


def test_a_stream_that_ends_too_soon_leaves_open_whether_it_recovered(tmp_path):
    drill = Drill()
    late = {f"r{number}" for number in range(34, 60)}
    drill.cells[0] = [e for e in drill.cells[0] if e.get("request_id") not in late]
    summary = summary_of(drill, tmp_path)
    assert judged(summary, "expect:cut.hit_rate_back_within")[0] is None
    assert judged(summary, "expect:cut.first_good_within")[0] is True


def test_a_rate_that_never_comes_back_is_broken(tmp_path):
    drill = Drill()
    for number in range(30, 60):
        drill.of("answer", request_id=f"r{number}")[0].update(cached_tokens=0, ttft_ns=80 * MS)
    summary = summary_of(drill, tmp_path)
    assert judged(summary, "expect:cut.hit_rate_back_within")[0] is False
    assert judged(summary, "expect:cut.ttft_back_within")[0] is False


def test_settings_that_were_edited_are_refused(tmp_path):
    drill = Drill()
    drill.manifest["scenario_hash"] = "0" * 16
    with pytest.raises(RunError, match="is not what ran"):
        summary_of(drill, tmp_path)


# -- files, tables, the command ------------------------------------------------------------


@pytest.mark.slow
def test_equal_drills_leave_equal_files(tmp_path):
    made = []
    for name in ("one", "two"):
        run_dir = Drill().write(tmp_path / name)
        assert write_all(run_dir) == read_summary(run_dir)
        made.append({p.name: p.read_bytes() for p in run_dir.iterdir() if p.is_file()})
    assert made[0] == made[1]
    assert made[0].keys() >= {"summary.json", "table.csv", "table.md", "history.jsonl"}
    lines = made[0]["history.jsonl"].decode().splitlines()
    events = [json.loads(line) for line in lines]
    assert [e["cell"] for e in events] == sorted(e["cell"] for e in events)
    first = [e["t_ns"] for e in events if e["cell"] == 0]
    assert first == sorted(first) and lines[0].startswith('{"cell":0,"t_ns":0,')
    head, row, control = made[0]["table.csv"].decode().splitlines()
    named = dict(zip(head.split(","), row.split(","), strict=True))
    assert named["verdict"] == "pass" and named["cut_detected_ms"] == "47.0"
    assert named["corrupt"] == "pass" and named["fetches_recomputed"] == "12"
    named = dict(zip(head.split(","), control.split(","), strict=True))
    assert (named["verdict"], named["corrupt"]) == ("fails as it must", "fail")
    text = made[0]["table.md"].decode()
    assert "## Verdict: pass" in text and "### control: corrupt" in text
    assert "- as written: cut took effect: 12 of 12 probes lost" in text


def test_times_of_a_void_cell_are_not_shown(tmp_path):
    drill = Drill()
    off_its_plan(drill)
    summary = summary_of(drill, tmp_path)
    head, row, _ = to_drill_csv(summary).splitlines()
    named = dict(zip(head.split(","), row.split(","), strict=True))
    assert named["ttft_p50_ms"] == named["cut_detected_ms"] == "" and named["requests"] == "60"


def test_a_terminal_gets_tables_lines_and_the_events_of_what_is_wrong(tmp_path, capsys):
    drill = Drill()
    wrong_answer(drill)
    print_run(summary_of(drill, tmp_path), table_console())
    shown = capsys.readouterr().out
    for said in ("cut", "47.00", "verdict: fail", "✗ answered-wrongly", "b answer request_id=r3"):
        assert said in shown, said


def run_check(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check-history", *args])
    return result.exit_code, result.output


def test_check_history_of_a_drill_counts_all_cells_but_the_control(tmp_path):
    run_dir = Drill().write(tmp_path)
    merge_history(run_dir)
    code, shown = run_check(str(run_dir))
    assert code == 0 and "history: pass" in shown and "control, broken on purpose" in shown
    code, text = run_check(str(run_dir), "--json")
    cells = json.loads(text)["cells"]
    assert [(cell["label"], cell["control"]) for cell in cells] == [
        ("as written", False), ("control", True)
    ]  # fmt: skip
    broken = [line["name"] for line in cells[1]["lines"] if line["ok"] is False]
    assert code == 0 and broken == ["corrupt"]


def test_check_history_fails_on_what_is_wrong_and_shows_it(tmp_path):
    drill = Drill()
    wrong_answer(drill)
    run_dir = drill.write(tmp_path)
    merge_history(run_dir)
    code, shown = run_check(str(run_dir))
    assert code == 1 and "request_id=r3" in shown


def test_check_history_calls_a_run_invalid_where_the_run_itself_does(tmp_path):
    drill = Drill()
    off_its_plan(drill)
    assert summary_of(drill, tmp_path)["exit_code"] == 3
    code, shown = run_check(str(tmp_path))
    assert code == 3 and "history: invalid" in shown and "✗ answered-wrongly" in shown


def test_check_history_of_a_measurement_run_says_what_it_cannot_know(tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    # Two VMs, each with a clock of its own: neither may be read with the other's.
    for part in ("0", "1"):
        for site, events in (("a", [store(5), serve(6)]), ("b", [use(7)])):
            path = records / f"history-{site}-{part}.jsonl"
            path.write_text("".join(json.dumps(event) + "\n" for event in events))
    (records / "history-b-1.jsonl").write_text(json.dumps(lost(1, "timeout")) + "\n")
    merge_history(tmp_path)
    assert [history.label for history in load_histories(tmp_path)] == ["part 0", "part 1"]
    code, text = run_check(str(tmp_path), "--json")
    zero, one = json.loads(text)["cells"]
    lines = {line["name"]: line for line in zero["lines"]}
    assert code == 1, "it was used at b and never came there"
    assert lines["half-written"]["ok"] is False and lines["corrupt"]["ok"] is True
    assert lines["answered-wrongly"]["ok"] is None and "fault-fired" not in text
    assert len(one["lines"]) == len(lines)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"t_ns":1,"op":"store"}', "{"], "history.jsonl:2: not an event"),
        (['{"op":"store"}'], "history.jsonl:1: not an event"),
        (['{"t_ns":1,"op":"store","site":"a"}'], "an event has no field 'key'"),
    ],
)
def test_a_broken_history_is_named(lines, said, tmp_path):
    (tmp_path / "history.jsonl").write_text("".join(line + "\n" for line in lines))
    result = CliRunner().invoke(app, ["check-history", str(tmp_path)])
    assert isinstance(result.exception, RunError) and said in str(result.exception)


def test_a_run_without_a_history_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["check-history", str(tmp_path)])
    assert isinstance(result.exception, RunError) and "there is no history" in str(result.exception)
    assert CliRunner().invoke(app, ["check-history", str(tmp_path / "no")]).exit_code != 0


# -- small ones -----------------------------------------------------------------------------


def fate_of(*events: Any) -> list[str]:
    return [fate for _, fate in fates(history(*events)).by_fetch]


def test_fates_of_fetches():
    failed = request(1), lost(2, "timeout")
    miss = {"t_ns": 3 * MS, "site": "b", "op": "miss", "key": "k1", "cause": "timeout",
            "request_id": "r1"}  # fmt: skip
    good = {"t_ns": 9 * MS, "site": "b", "op": "answer", "request_id": "r1", "status": "ok",
            "done_ns": 9 * MS}  # fmt: skip
    bad = {**good, "status": "error", "error": "the deadline passed"}
    assert fate_of(*failed, miss, good) == ["recomputed"]
    assert fate_of(*failed, miss, bad) == ["failed"]
    assert fate_of(*failed, miss) == ["failed"]
    assert fate_of(*failed, lost(3, "absent", source="c"), miss, good) == ["retried", "recomputed"]
    assert fate_of(*failed, use(3, source="c"), good) == ["retried"]
    assert fate_of(*failed, good) == ["recomputed"]
    killed = {"t_ns": 4 * MS, "site": "b", "op": "life", "incarnation": 1, "phase": "killed"}
    assert fate_of(*failed, killed) == ["failed"]
    assert fate_of(request(1), lost(2, "cancelled"), use(3), good) == ["recomputed"]


def test_only_the_life_that_was_killed_may_have_sent_and_not_said_so():
    begun = [life(0, "a", 1), request(1), life(3, "a", 1, "killed"), life(4, "a", 2)]
    told = {f.name: f for f in examine(history(*begun, fetch(2)))}
    assert told["accounted"].ok is True
    told = {f.name: f for f in examine(history(*begun, fetch(5, incarnation=2)))}
    assert told["accounted"].ok is False and "which never sent it" in told["accounted"].said
    sent = serve(5, incarnation=2)
    told = {f.name: f for f in examine(history(*begun, sent, fetch(5, incarnation=2)))}
    assert told["accounted"].ok is True
    # What an earlier life has sent is no word for what a later one has not.
    told = {f.name: f for f in examine(history(*begun, serve(2), fetch(5, incarnation=2)))}
    assert told["accounted"].ok is False


def test_a_fault_that_was_never_asked_for_did_not_fire():
    (line,) = [f for f in examine(History([]), ["cut"]) if f.name.startswith("fault-fired")]
    assert line.ok is None and "never asked for" in line.said
    seen = history(fault(1, "asked"), fault(2, "took-effect"))
    (line,) = [f for f in examine(seen) if f.name.startswith("fault-fired")]
    assert line.ok is True


def test_links_must_be_checked_before_and_after():
    once = next(f for f in examine(history(links(1, "before"))) if f.name == "links")
    assert once.ok is None and "not checked after" in once.said


def test_long_lists_of_an_excerpt_are_cut_and_say_so():
    event = {
        "t_ns": 1,
        "op": "held",
        "dram": list(range(100)),
        "keys": {str(i): i for i in range(9)},
    }
    short = brief(event)
    assert short["dram"] == [*range(8), "… 92 more"] and short["keys"]["…"] == "1 more"
