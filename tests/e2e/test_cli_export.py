"""A real run's traces, as a collector reads them."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet
from cli import Geokv, Run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "report"))


def test_a_run_s_traces_say_what_its_requests_do(geokv: Geokv, smoke: Run, tmp_path: Path) -> None:
    from otlp_reader import attributes, read_otlp, spans_of

    path = tmp_path / "trace.json"
    done = geokv("export", smoke.folder, "--otlp", path)
    rows = {
        row["request_id"]: row
        for row in pyarrow.parquet.read_table(smoke.folder / "requests.parquet").to_pylist()
    }
    assert (done.returncode, done.stdout) == (0, f"{len(rows)} traces in {path}\n")
    for trace in read_otlp(path):
        (_, root), *steps = spans_of(trace)
        row = rows.pop(attributes(root)["geokv.request_id"])
        came = [span for _, span in steps if span.name == "chunk"]
        assert len(came) == row["chunks_remote"]
        for span in came:
            inside = root.start_time_unix_nano <= span.start_time_unix_nano
            assert inside and span.end_time_unix_nano <= root.end_time_unix_nano
        assert sum(attributes(span)["geokv.bytes"] for span in came) == row["wire_bytes"]
        length_ns = {
            span.name: span.end_time_unix_nano - span.start_time_unix_nano
            for _, span in steps
            if span.name != "chunk"
        }
        assert sum(length_ns.values()) == row["done_ns"] - row["sent_ns"]
        assert sum(length_ns.values()) - length_ns["decode"] == row["ttft_ns"]
        assert length_ns.get("fetch", 0) == row["fetch_ns"]
        asked = [event for event in root.events if event.name == "lookup"]
        assert len(asked) == (row["arm"] == "remote-hit"), "what sites did for it is with it"
        for event in root.events:
            assert root.start_time_unix_nano <= event.time_unix_nano <= root.end_time_unix_nano
    assert not rows
