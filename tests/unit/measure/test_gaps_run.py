"""From a run folder written by hand to its gaps, its trace, and the scenario that replays it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from handwritten import SCENARIO, Run
from handwritten_drill import SCENARIO as DRILL
from handwritten_drill import Drill
from histories import MS, ev
from typer.testing import CliRunner

from geokv.cli import app
from geokv.coordinator.tracing import prompt_blocks
from geokv.errors import ConfigError
from geokv.measure.checker.prefixes import Prefixes
from geokv.measure.drill.by_hand import done_by_hand
from geokv.measure.gaps.trace import differing
from geokv.report.run_folder import write_all
from geokv.scenario.replay import replay_of
from geokv.scenario.workload import Trace

PREFIX = list(range(256)) * 2
SIZE = 16


def small() -> Run:
    """Two cells; prompts of two chunks and a question, each with what came before it."""
    run = Run({**SCENARIO, "sweep": [{"path": "links.a-b.km", "values": [0, 50]}], "expect": {}})
    for number, row in enumerate(run.requests):
        tokens = PREFIX + [number % 251 + 1] * 32
        row |= {
            "prompt_tokens": len(tokens),
            "cached_tokens": min(512, row["cached_tokens"]),
            "chunks_remote": min(2, row["chunks_remote"]),
            "chunks_local": min(2, row["chunks_local"]),
            "chunks_by_site": {"a": 2} if row["chunks_remote"] else {},
            "blocks": prompt_blocks(tokens, SIZE),
            "block_tokens": SIZE,
            "max_tokens": 4,
            "setup": [f"reuse b {'none' if row['arm'] == 'recompute' else 'remote'}"],
            "sent_ns": 1_000_000_000 * (1 + number),
        }
    return run


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]


def test_names_of_blocks_stand_for_all_before_them() -> None:
    whole = prompt_blocks(list(range(40)), SIZE)
    assert len(whole) == 3 and all(len(name) == 16 for name in whole)
    other = prompt_blocks([*range(16), 99, *range(17, 40)], SIZE)
    assert other[0] == whole[0] and other[1] != whole[1]
    assert other[2] != whole[2], "the same tokens behind another beginning"
    assert prompt_blocks(list(range(32)), SIZE) == whole[:2]
    assert prompt_blocks(list(range(41)), SIZE)[2] != whole[2], "a shorter rest is another block"


def test_a_run_has_every_gap_and_a_trace_of_every_request(tmp_path: Path) -> None:
    run = small()
    summary = write_all(run.write(tmp_path))
    gaps = summary["gaps"]
    assert list(gaps) == [f"mg{number}" for number in range(1, 8)]
    assert [row["group"] for row in gaps["mg6"]["groups"][:3]] == run.scenario.arms
    row = next(one for one in gaps["mg1"]["groups"] if one["group"] == "remote-hit")
    assert row["requests"] == 2 and row["remote_share"] == round(512 / 544, 4)
    assert row["chunks_read"] == 0, "no history says what was read"
    first = gaps["mg7"]["cells"][0]
    # Two questions and a warm-up of each arm.
    assert first["requests"] == 9 and first["remote_tokens_from"] == {"b": {"a": 3 * 512}}
    assert first["tokens"]["b"] == {
        "device": 0, "dram": 3 * 512, "disk": 0, "remote": 3 * 512, "computed": 3 * 544 + 6 * 32
    }  # fmt: skip
    trace = lines(tmp_path)
    assert len(trace) == len(run.requests) == 18
    assert [line["timestamp"] for line in trace[:3]] == [0, 1000, 2000]
    assert [line["timestamp"] for line in trace[8:11]] == [8000, 9000, 10000]
    assert trace[9]["cell"] == 1 and trace[9]["due_ns"] == 0
    for line in trace:
        assert len(line["hash_ids"]) == 34 and line["hash_ids"][:32] == list(range(32))
    assert len({line["hash_ids"][32] for line in trace}) == 18


def test_arms_with_planted_kv_are_no_traffic_but_leave_what_was_done(tmp_path: Path) -> None:
    arms = ["recompute", "control-corrupt", "remote-hit"]
    run = Run({**SCENARIO, "arms": arms, "sweep": [], "expect": {}})
    for number, row in enumerate(run.requests):
        row |= {
            "blocks": prompt_blocks(PREFIX, SIZE), "block_tokens": SIZE, "prompt_tokens": 512,
            "setup": [f"forget {row['arm'][0]}{number}"], "sent_ns": MS * number,
        }  # fmt: skip
    write_all(run.write(tmp_path))
    trace = lines(tmp_path)
    assert {line["group"] for line in trace} == {"recompute", "remote-hit"}
    # After three lines of recompute come three of the control, and then this one.
    assert trace[3]["setup"] == ["forget c3", "forget c4", "forget c5", "forget r6"]


def test_a_cell_is_replayed_as_what_was_asked_in_it(tmp_path: Path) -> None:
    write_all(small().write(tmp_path))
    replay = replay_of(tmp_path, 1)
    assert isinstance(replay.workload, Trace)
    assert replay.name == "by_hand-replay" and replay.is_drill
    assert replay.topology.links["a-b"].km == 50
    assert replay.workload.requests == 9 and replay.workload.deadline == 30
    assert [line.setup for line in replay.workload.stream[:1]] == [["reuse b none"]]
    with pytest.raises(ConfigError, match="no cell 2"):
        replay_of(tmp_path, 2)
    (tmp_path / "trace.jsonl").unlink()
    with pytest.raises(ConfigError, match="there is no trace"):
        replay_of(tmp_path)


def drill_with_prompts(**changes: Any) -> Drill:
    drill = Drill({**DRILL, **changes})
    for cell in drill.cells:
        for event in drill.of("request", cell):
            tokens = [*range(256), *([int(event["request_id"][1:]) + 1] * 64)]
            event |= {"blocks": prompt_blocks(tokens, SIZE), "block_tokens": SIZE, "max_tokens": 3}
    return drill


def test_a_drill_is_replayed_with_its_faults_and_without_its_control(tmp_path: Path) -> None:
    summary = write_all(drill_with_prompts().write(tmp_path))
    assert summary["gaps"]["mg7"]["cells"][0]["requests"] == 60
    replay = replay_of(tmp_path)
    assert [event.title for event in replay.timeline] == ["cut"]
    assert replay.control is None and replay.expect.drill.answered == 1.0
    assert isinstance(replay.workload, Trace) and replay.workload.asked == ["b"]
    assert replay.workload.due_ns[:3] == [0, 50 * MS, 100 * MS]
    with pytest.raises(ConfigError, match="control"):
        replay_of(tmp_path, 1)


def test_a_run_by_the_wall_clock_is_replayed_in_virtual_time(tmp_path: Path) -> None:
    drill = drill_with_prompts(clock="wall")
    drill.manifest["clock"] = "wall"
    write_all(drill.write(tmp_path))
    replay = replay_of(tmp_path)
    assert replay.clock == "virtual"
    assert replay.title.endswith(", replayed from its trace in virtual time")
    assert [event.title for event in replay.timeline] == ["cut"]


def test_the_meter_of_a_run_is_not_asked_for_in_its_replay(tmp_path: Path) -> None:
    write_all(small().write(tmp_path))
    path = tmp_path / "scenario.yaml"
    resolved = yaml.safe_load(path.read_text(encoding="utf-8"))
    resolved |= {"clock": "wall", "energy": {**resolved["energy"], "grade": "cpu"}}
    path.write_text(yaml.safe_dump(resolved, sort_keys=False), encoding="utf-8")
    replay = replay_of(tmp_path)
    assert (replay.clock, replay.energy.grade) == ("virtual", None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"deployment": {"compute": "real"}}, "compute: real takes no time there"),
        (
            {"cache": {**DRILL["cache"], "substrate": {"kind": "nixl"}}},
            "nixl, which polls, would stop it",
        ),
    ],
)
def test_what_needs_the_wall_clock_is_not_replayed(
    changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    drill = drill_with_prompts(clock="wall", **changes)
    drill.manifest["clock"] = "wall"
    write_all(drill.write(tmp_path))
    with pytest.raises(ConfigError, match=f"a replay has the virtual clock, and {why}") as refused:
        replay_of(tmp_path)
    assert f"workload: {{kind: trace, file: {tmp_path / 'trace.jsonl'}, cell: 0}}" in (
        refused.value.hint
    )


def test_what_was_done_by_hand_is_not_replayed_and_not_passed_over(tmp_path: Path) -> None:
    drill = drill_with_prompts()
    drill.manifest["live"] = True
    told = [("inject", "slow-gpu-1"), ("heal", "cut"), ("stop", "")]
    for number, (do, name) in enumerate(told):
        drill.cells[0].append(ev(600 + number, "command", do=do, name=name, id=f"{number}"))
    drill.cells[0].sort(key=lambda event: int(event["t_ns"]))
    write_all(drill.write(tmp_path / "told"))
    found = CliRunner().invoke(app, ["replay", str(tmp_path / "told")])
    assert isinstance(found.exception, ConfigError)
    said = "what was done by hand in cell 0 (inject slow-gpu-1, heal cut) is not in its trace"
    assert said in str(found.exception) and "timeline" in found.exception.hint
    assert done_by_hand(tmp_path / "told", 1) == []
    # Where it was stopped, its trace ends.
    assert replay_of(tmp_path / "told", 0, ["stop"]).workload.requests == 60


def test_a_replay_that_hits_otherwise_is_told_number_by_number() -> None:
    then = {
        "requests": 2, "answered": 2, "tokens": {"b": {"remote": 512, "computed": 32}},
        "remote_tokens_from": {"b": {"a": 512}},
    }  # fmt: skip
    now = {
        "requests": 2, "answered": 1, "tokens": {"b": {"remote": 256, "computed": 32}},
        "remote_tokens_from": {"b": {"a": 256}},
    }  # fmt: skip
    assert differing(then, then) == []
    assert differing(then, now) == [
        "answered: 2 then, 1 now",
        "b, remote: 512 tokens then, 256 now",
        "b, a: 512 tokens then, 256 now",
    ]


def test_beginnings_are_told_apart_by_blocks_where_prefixes_have_no_number() -> None:
    def event(tokens: list[int], size: int) -> dict[str, Any]:
        blocks = prompt_blocks(tokens, size)
        return {"blocks": blocks, "block_tokens": size, "prompt_tokens": len(tokens)}

    one, other = list(range(50)), [*range(32), *range(100, 120)]
    for size in (8, 16):
        names, others = Prefixes.of(event(one, size)), Prefixes.of(event(other, size))
        assert len(names) == len(others) == 4
        assert names[:3] == others[:3] and names[3] != others[3]
    assert Prefixes.of({"blocks": ["a"], "block_tokens": 24, "prompt_tokens": 24}) == []
