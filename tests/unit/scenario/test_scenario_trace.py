"""Traces as workloads: what a file may say, and what prompts, times and sites come of it."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from geokv.coordinator.drill.schedule import Due, trace_schedule
from geokv.coordinator.prompts import TracePrompts
from geokv.errors import ConfigError
from geokv.paths import CHECKOUT
from geokv.scenario import Scenario, load_scenario
from geokv.scenario.workload import Trace

TRACES = Path(os.environ.get("GEOKV_TRACES") or CHECKOUT.parent / "shared" / "traces")
PUBLIC = TRACES / "mooncake"
"""Public traces: GEOKV_TRACES, or shared/traces beside the checkout."""
LINES: list[dict[str, Any]] = [
    {"timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [7, 8, 9]},
    {"timestamp": 3000, "input_length": 48, "output_length": 0, "hash_ids": [7, 8, 10]},
    {"timestamp": 3000, "input_length": 40, "output_length": 5, "hash_ids": [7, 8, 9]},
    {"timestamp": 6000, "input_length": 36, "output_length": 5, "hash_ids": [11, 8]},
]


def scenario(folder: Path, rows: list[Any], **workload: Any) -> Scenario:
    """Of a trace with blocks of 16 tokens."""
    path = folder / "some.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return load_scenario(
        {
            "name": "replayed",
            "title": "A trace",
            "question": "Is it read as it is written?",
            "topology": "pair",
            "deployment": {"content": "synthetic"},
            "cache": {"directory": {"kind": "central", "site": "a"}},
            "workload": {
                "kind": "trace",
                "file": str(path),
                "block_tokens": 16,
                "askers": {"a": 1, "b": 1},
                **workload,
            },
        }
    )


def trace(folder: Path, rows: list[Any], **workload: Any) -> Trace:
    found = scenario(folder, rows, **workload).workload
    assert isinstance(found, Trace)
    return found


def due(folder: Path, rows: list[Any], **workload: Any) -> list[Due]:
    found = trace(folder, rows, **workload)
    return trace_schedule(found, TracePrompts(found, 1), 1)[1]


def test_equal_blocks_behind_equal_beginnings_are_equal_tokens(tmp_path: Path) -> None:
    first, other, same, last = (one.tokens for one in due(tmp_path, LINES))
    assert [len(one) for one in (first, other, same, last)] == [40, 48, 40, 36]
    assert first == same
    assert first[:32] == other[:32] and first[32] != other[32]
    assert last[:16] != first[:16]
    # Block 8 stands behind another block here: it is another block.
    assert last[16:32] != first[16:32]
    # The file has no id for the last four tokens: they are nobody else's.
    assert len(last) == 36


def test_names_of_prompts_are_equal_where_texts_and_answers_are(tmp_path: Path) -> None:
    rows = [LINES[0], {**LINES[2], "output_length": 3}, LINES[2]]
    assert [one.prompt for one in due(tmp_path, rows)] == ["q0", "q0", "q2"]


def test_times_are_written_spread_or_faster(tmp_path: Path) -> None:
    ms = 1_000_000
    assert trace(tmp_path, LINES).due_ns == [0, 3000 * ms, 3000 * ms, 6000 * ms]
    spread = trace(tmp_path, LINES, spread="3s", speed=2)
    assert spread.due_ns == [0, 1500 * ms, 2250 * ms, 3000 * ms]
    # Nobody overtakes who comes later.
    assert trace(tmp_path, LINES, spread="20s").due_ns == [0, 3000 * ms, 4500 * ms, 6000 * ms]
    exact = [{**LINES[0], "due_ns": 0}, {**LINES[1], "due_ns": 2_999_999_744}]
    assert trace(tmp_path, exact).due_ns == [0, 2_999_999_744]


def test_lines_are_asked_in_the_order_they_come(tmp_path: Path) -> None:
    assert [one.max_tokens for one in due(tmp_path, LINES[::-1])] == [3, 5, 1, 5]


def test_sessions_stay_where_they_began_and_lines_where_they_are_written(tmp_path: Path) -> None:
    rows = [{**LINES[0], "timestamp": n, "session": n % 5} for n in range(60)]
    rows[7]["site"] = "a"
    found = due(tmp_path, rows)
    assert found[7].site == "a"
    for session in (0, 1, 3, 4):
        assert len({one.site for one in found[session::5]}) == 1
    assert {one.site for one in found} == {"a", "b"}
    assert due(tmp_path, rows) == found, "the same seed is the same choice"


def test_tenants_are_numbered_and_ours_keep_their_number(tmp_path: Path) -> None:
    named = [{**row, "tenant": name} for row, name in zip(LINES, "zyzx", strict=True)]
    assert [one.tenant for one in due(tmp_path, named)] == [0, 1, 0, 2]
    ours = [{**row, "tenant": f"tenant-{n}"} for row, n in zip(LINES, (2, 0, 2, 1), strict=True)]
    assert [one.tenant for one in due(tmp_path, ours)] == [2, 0, 2, 1]
    assert trace(tmp_path, ours).tenants == 3


def test_leading_lines_that_prepare_are_no_part_of_the_stream(tmp_path: Path) -> None:
    rows = [
        {**LINES[0], "group": "prepare", "site": "a", "setup": ["reuse a local"]},
        {**LINES[1], "setup": ["settle a", "reuse a remote"], "site": "b"},
        {**LINES[3], "group": "prepare", "site": "b"},
    ]
    found = trace(tmp_path, rows, askers={})
    first, stream = trace_schedule(found, TracePrompts(found, 1), 1)
    assert [one.setup for one in first] == [("reuse a local",)]
    assert [one.due_ns for one in stream] == [0, 3_000_000_000]
    assert stream[0].setup == ("settle a", "reuse a remote")
    assert stream[1].more == {"category": "prepare"}
    assert (found.requests, found.prepared_at, found.asked) == (2, ["a"], ["a", "b"])


def test_the_run_folder_keeps_the_lines_that_are_replayed(tmp_path: Path) -> None:
    run = scenario(tmp_path, LINES, skip=1, take=2)
    assert isinstance(run.workload, Trace) and run.workload.requests == 2
    assert isinstance(run.cells()[0].scenario.workload, Trace)
    (tmp_path / "some.jsonl").unlink()
    again = load_scenario(run.resolved())
    assert again.hash == run.hash and again.workload.requests == 2


def test_cells_of_a_runs_trace_are_told_apart(tmp_path: Path) -> None:
    rows = [{**row, "cell": n // 2} for n, row in enumerate(LINES)]
    assert trace(tmp_path, rows, cell=1).requests == 2
    with pytest.raises(ConfigError, match="no line left for this cell"):
        trace(tmp_path, rows, cell=2)


def test_a_zipped_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in LINES).encode()))
    assert trace(tmp_path, LINES, file=str(path)).requests == 4
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ConfigError, match=r"workload\.file: .* cannot be read"):
        trace(tmp_path, LINES, file=str(path))


BAD: list[tuple[Any, dict[str, Any], str]] = [
    ("no json", {}, "some.jsonl:5: not a request of a trace"),
    ({**LINES[0], "hash_ids": [1]}, {}, "hash_ids: 40 tokens are 3 blocks of 16, got 1"),
    ({**LINES[0], "input_length": 0}, {}, "input_length: must be ≥ 1"),
    ({**LINES[0], "timestamp": -1}, {}, "timestamp: must be ≥ 0"),
    ({**LINES[0], "setup": ["sudo b"]}, {}, "setup: unknown step 'sudo b'"),
    ({**LINES[0], "site": "zz"}, {}, "workload.file: unknown site 'zz'"),
    (LINES[0], {"askers": {}}, "askers: 5 of 5 lines name no site"),
    (LINES[0], {"askers": {"q": 1}}, "workload.askers: unknown site 'q'"),
    (LINES[0], {"file": "nowhere.jsonl"}, "cannot be read"),
]


@pytest.mark.parametrize(("row", "workload", "said"), BAD)
def test_what_is_no_trace_is_refused(
    tmp_path: Path, row: Any, workload: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario(tmp_path, [*LINES, row], **workload)
    assert said in str(caught.value)


def test_a_trace_only_of_preparing_asks_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has only requests that prepare"):
        scenario(tmp_path, [{**LINES[0], "group": "prepare"}])


def test_prompts_and_answers_can_be_cut(tmp_path: Path) -> None:
    found = due(tmp_path, LINES, longest_tokens=33, answers_at_most=2)
    assert [len(one.tokens) for one in found] == [33, 33, 33, 33]
    assert [one.max_tokens for one in found] == [2, 1, 2, 2]


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public traces are not here: set GEOKV_TRACES")
@pytest.mark.parametrize(
    ("name", "least"), [("conversation_trace.jsonl.gz", 59), ("synthetic_trace.jsonl", 1)]
)
def test_the_public_mooncake_traces_are_read(tmp_path: Path, name: str, least: int) -> None:
    """Whole blocks whose beginning was there before are found again as tokens; all conversations
    begin with the same block."""
    found = trace(tmp_path, LINES, file=str(PUBLIC / name), block_tokens=512, take=300, spread="3s")
    assert found.requests == 300 and found.due_ns == sorted(found.due_ns)
    lines, prompts = found.lines, TracePrompts(found, 1)
    seen: set[tuple[int, ...]] = set()
    by_tokens = by_ids = 0
    known: set[tuple[int | str, ...]] = set()
    for number, line in enumerate(lines[:60]):
        tokens = prompts.question(0, number, False)
        assert len(tokens) == line.input_length
        for block in range(line.input_length // 512):
            start = tuple(tokens[: (block + 1) * 512])
            ids = tuple(line.hash_ids[: block + 1])
            by_tokens += start in seen
            by_ids += ids in known
            seen.add(start)
            known.add(ids)
    assert by_tokens == by_ids >= least
