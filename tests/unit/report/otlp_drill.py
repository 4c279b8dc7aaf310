"""A drill written by hand whose requests have spans and fetched chunks, to be exported."""

from __future__ import annotations

from pathlib import Path

from handwritten_drill import Drill
from histories import MS

from geokv.measure.spans import SPAN_NAMES
from geokv.report.history import merge_history


def drill_folder(tmp_path: Path) -> Path:
    """With spans in its answers, as real ones have."""
    drill = Drill()
    for event in (*drill.of("answer"), *drill.of("answer", cell=1)):
        sent_ns = event["first_ns"] - event["ttft_ns"]
        first = {f"{name}_ns": MS for name in SPAN_NAMES}
        first["prefill_ns"] += event["ttft_ns"] - len(SPAN_NAMES) * MS
        event |= {"sent_ns": sent_ns, "spans": first, "source": "remote"}
    for cell in (0, 1):
        for fetch, use in zip(
            drill.of("fetch", cell, cause=""), drill.of("use", cell), strict=True
        ):
            end_ns = fetch["t_ns"]
            fetch |= {
                "request_id": use["request_id"], "index": 0, "bytes": 1000, "parts": 1,
                "asked_ns": end_ns - 5 * MS, "first_byte_ns": end_ns - 3 * MS,
                "last_byte_ns": end_ns - MS, "verified_ns": end_ns,
            }  # fmt: skip
    run_dir = drill.write(tmp_path / "drill")
    merge_history(run_dir)
    return run_dir
