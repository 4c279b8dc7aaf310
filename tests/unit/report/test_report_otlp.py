"""OTLP files: read back with the protocol's own messages; times add up, ids repeat."""

from __future__ import annotations

from pathlib import Path

import pytest
from handwritten_drill import CUT_MS, Drill
from histories import MS
from otlp_drill import drill_folder
from otlp_reader import attributes, read_otlp, spans_of
from typer.testing import CliRunner

from geokv.cli import app
from geokv.errors import ConfigError, RunError
from geokv.measure.records import load_requests
from geokv.measure.spans import SPAN_NAMES
from geokv.report.history import merge_history
from geokv.report.otlp.write import write_otlp

ZERO_NS = 1_767_225_600 * 10**9


def test_a_trace_per_request_whose_spans_tile_it(run_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    rows = {row.request_id: row for row in load_requests(run_dir)}
    assert write_otlp(run_dir, path) == len(rows)
    traces = read_otlp(path)
    assert len(traces) == len(rows)
    for trace in traces:
        (client, root), *steps = spans_of(trace)
        about = attributes(root)
        row = rows.pop(about["geokv.request_id"])
        assert root.start_time_unix_nano == ZERO_NS + row.sent_ns
        assert root.end_time_unix_nano == ZERO_NS + row.done_ns
        assert (client, root.name, root.status.code) == ("client-b", row.arm, 1)
        assert about["geokv.setting.links.a-b.km"] in (0, 50, 100, 600)
        assert about["geokv.links"] == (["a-b"] if row.arm == "remote-hit" else [])
        assert about["gen_ai.usage.output_tokens"] == 4
        at_ns = root.start_time_unix_nano
        for service, span in steps:
            assert service == "site-b"
            assert (span.trace_id, span.parent_span_id) == (root.trace_id, root.span_id)
            assert span.start_time_unix_nano == at_ns, "each begins where the last one ends"
            assert span.end_time_unix_nano > at_ns
            at_ns = span.end_time_unix_nano
            if span.name == "first_byte":
                assert at_ns - root.start_time_unix_nano == row.ttft_ns
        assert at_ns == root.end_time_unix_nano
        names = [span.name for _, span in steps]
        assert names == [name for name in (*SPAN_NAMES, "decode") if name in names]
        assert ("fetch" in names) == (row.arm == "remote-hit")
        for _, span in steps:
            if span.name == "fetch":
                assert attributes(span) == {
                    "geokv.chunks_remote": row.chunks_remote,
                    "geokv.wire_bytes": row.wire_bytes,
                    "geokv.links": ["a-b"],
                }
    assert not rows


def test_ids_are_of_the_run_and_no_two_are_alike(run_dir: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    write_otlp(run_dir, one)
    write_otlp(run_dir, two)
    assert one.read_bytes() == two.read_bytes()
    spans = [span for trace in read_otlp(one) for _, span in spans_of(trace)]
    assert len({span.span_id for span in spans}) == len(spans)
    assert len({span.trace_id for span in spans}) == len(read_otlp(one))


def test_begin_moves_all_and_changes_nothing_else(run_dir: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    write_otlp(run_dir, one)
    write_otlp(run_dir, two, begin_ns=1_000)
    shift: set[int] = set()
    starts = []
    for before, after in zip(read_otlp(one), read_otlp(two), strict=True):
        for (_, a), (_, b) in zip(spans_of(before), spans_of(after), strict=True):
            assert (a.span_id, a.name) == (b.span_id, b.name)
            shift.add(a.start_time_unix_nano - b.start_time_unix_nano)
            starts.append(b.start_time_unix_nano)
    assert len(shift) == 1 and min(starts) == 1_000


def test_faults_are_events_of_the_requests_that_met_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert write_otlp(drill_folder(tmp_path), path) == 120, "both cells"
    cut_ns = tuple(ZERO_NS + round(ms * MS) for ms in CUT_MS)
    met, seen = set(), []
    for trace in read_otlp(path):
        (_, root), *parts = spans_of(trace)
        about = attributes(root)
        steps = [span for _, span in parts if span.name != "chunk"]
        assert steps[-1].end_time_unix_nano == root.end_time_unix_nano
        came = [span for _, span in parts if span.name == "chunk"]
        assert len(came) == (about["geokv.chunks_remote"] == 1)
        for span in came:
            assert span.end_time_unix_nano - span.start_time_unix_nano == 5 * MS
            assert [event.name for event in span.events] == ["first byte", "last byte"]
            assert (span.parent_span_id, span.kind) == (root.span_id, span.SPAN_KIND_CLIENT)
            said = attributes(span)
            assert (said["geokv.source"], said["geokv.bytes"]) == ("a", 1000)
        lasts = root.start_time_unix_nano <= cut_ns[1] and root.end_time_unix_nano >= cut_ns[0]
        assert about["geokv.faults"] == (["cut"] if lasts else [])
        met |= {about["geokv.request_id"]} if lasts else set()
        for event in root.events:
            assert root.start_time_unix_nano <= event.time_unix_nano <= root.end_time_unix_nano
            said = attributes(event)
            if event.name == "fault took-effect":
                seen.append(said)
            if event.name == "miss":
                assert said["geokv.cause"] == "timeout" and about["geokv.misses.timeout"] == 1
            if event.name == "use":
                assert said["geokv.source"] == "a" and about["geokv.links"] == ["a-b"]
    # Of 20 a second, ten begin while it is cut.
    assert len(met) == 11
    assert len(seen) == 2, "the one under way in each cell"
    assert seen[0] == {
        "geokv.fault": "cut", "geokv.kind": "link-cut", "geokv.target": "a-b",
        "geokv.seen": "12 of 12 probes lost",
    }  # fmt: skip


def test_what_was_never_answered_is_an_error_without_steps(tmp_path: Path) -> None:
    drill = Drill()
    (answer,) = drill.of("answer", request_id="r3")
    sent_ns = drill.of("request", request_id="r3")[0]["t_ns"]
    answer.update(op="unanswered", waited_ns=5 * 10**9)
    run_dir = drill.write(tmp_path / "drill")
    merge_history(run_dir)
    write_otlp(run_dir, tmp_path / "trace.json")
    found = [
        spans
        for spans in map(spans_of, read_otlp(tmp_path / "trace.json"))
        if attributes(spans[0][1])["geokv.request_id"] == "r3"
    ]
    ((_, root),) = found[0]
    assert (root.status.code, root.status.message) == (2, "no answer by its deadline")
    assert root.end_time_unix_nano - root.start_time_unix_nano == 5 * 10**9
    assert root.start_time_unix_nano == ZERO_NS + sent_ns


@pytest.mark.parametrize(
    ("begin", "first_ns"),
    [("2026-11-30T07:00:00Z", 1_796_022_000), ("2026-11-30T09:00:00+02:00", 1_796_022_000),
     ("1970-01-01T00:00:01", 1)],
)  # fmt: skip
def test_the_command(begin: str, first_ns: int, run_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    done = CliRunner().invoke(app, ["export", str(run_dir), "--otlp", str(path), "--begin", begin])
    assert (done.exit_code, done.stdout.split()[1]) == (0, "traces")
    starts = [span.start_time_unix_nano for trace in read_otlp(path) for _, span in spans_of(trace)]
    assert min(starts) == first_ns * 10**9


def test_what_cannot_be_exported_is_refused(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run folder"):
        write_otlp(tmp_path / "nothing", tmp_path / "x")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_otlp(run_dir, tmp_path)
    (run_dir / "records" / "requests.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match=r"requests\.jsonl:1: not a record"):
        write_otlp(run_dir, tmp_path / "x")
    wrong = CliRunner().invoke(app, ["export", str(run_dir), "--otlp", "x", "--begin", "soon"])
    assert isinstance(wrong.exception, ConfigError) and "is no time" in wrong.exception.message
