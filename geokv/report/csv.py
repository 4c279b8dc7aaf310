"""``table.csv``: a row per cell, every number of it. Equal runs give equal bytes."""

from __future__ import annotations

import csv
import io
from typing import Any

from geokv.report.words import other_settings

ARMS = ("recompute", "local_hit", "remote_hit")
SPANS = ("queue", "lookup", "fetch", "completion", "load", "prefill", "first_byte")
_CELL = ("km", "out_of_range", "valid", "rtt_asked_ms", "rtt_measured_ms", "goodput_ratio")
_COMPARED = ("gain", "gain_change_percent", "gain_change_points")
_ANSWERS = ("compared", "wrong", "first_logits_diff")


def to_csv(summary: dict[str, Any]) -> str:
    """The table as text, one header line, ``\\n`` line ends, empty where there is no number.

    In a cell whose links were off their plan no result is a number (INV-7).
    """
    others = other_settings(summary)
    rows = [_row(cell, others) for cell in summary["cells"]]
    return text_of(rows)


def text_of(rows: list[dict[str, Any]]) -> str:
    """A table whose columns are those of all rows, in the order in which they first come."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def shown(value: Any) -> Any:
    """One value of a table: yes and no in words, nothing where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else value


def _row(cell: dict[str, Any], others: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {path: cell["settings"].get(path) for path in others}
    row.update({name: shown(cell[name]) for name in _CELL})
    valid = cell["valid"]
    for name in ARMS:
        arm = cell["arms"].get(name)
        if arm is not None:
            row.update({f"{name}_{key}": shown(value) for key, value in _arm(arm, valid).items()})
    row.update({name: shown(cell[name]) for name in (*_COMPARED, *_ANSWERS)})
    return row


def _arm(arm: dict[str, Any], valid: bool) -> dict[str, Any]:
    parts = arm["energy_parts_j"] or {}
    results: dict[str, Any] = {
        "ttft_p50_ms": arm["ttft_p50_ms"],
        "ttft_p99_ms": arm["ttft_p99_ms"],
        "ttft_max_ms": arm["ttft_max_ms"],
        "ttft_mean_ms": arm["ttft_mean_ms"],
        **_ends("p50", arm["interval"]),
        **_ends("p99", arm["p99_interval"]),
        **_ends("mean", arm["mean_interval"]),
        **{f"{span}_ms": arm["spans_ms"].get(span) for span in SPANS},
        "energy_proxy_j": arm["energy_j"],
        **{f"energy_proxy_{part}_j": parts.get(part) for part in ("gpu", "optics", "transfer")},
    }
    if "bound_ms" in arm:
        fetching = arm["fetching"] or {}
        results["ratio_to_bound"] = arm["ratio_to_bound"]
        results["goodput_gbps"] = fetching.get("goodput_gbps")
        results["round_trips"] = fetching.get("round_trips")
        results["fetch_predicted_ms"] = fetching.get("predicted_ms")
    if not valid:
        results = dict.fromkeys(results)
    counts = {"n": arm["n"], "failed": arm["failed"], "bytes": arm["bytes"]}
    if "bound_ms" in arm:
        counts["fetched"] = arm["fetched"]
        counts["chunks"] = (arm["fetching"] or {}).get("chunks")
        counts["bound_ms"] = arm["bound_ms"]
    return {**counts, **results}


def _ends(of: str, interval: dict[str, Any] | None) -> dict[str, Any]:
    found = interval or {}
    return {f"ttft_{of}_{end}_ms": found.get(f"{end}_ms") for end in ("low", "high")}
