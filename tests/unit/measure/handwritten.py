"""A whole run folder written by hand: records whose every number is known beforehand.

One site pair, cells at 0, 50 and 100 km and one at 600 km out of range. Times are
built from parts: a recompute takes 500 ms of prefill, a local hit 10 ms, a remote hit
10 ms plus RTT plus 1 GiB / 4 at 25 Gb/s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geokv.scenario import Scenario, load_scenario

MS = 1_000_000
WIRE_BYTES = 2**30 // 4
RATE_BPS = 25_000_000_000
TRANSFER_NS = 85_899_346  # 2**28 * 8 / 25e9 s

SCENARIO: dict[str, Any] = {
    "name": "by_hand",
    "title": "A run written by hand",
    "question": "Does the arithmetic hold?",
    "topology": {
        "name": "pair",
        "sites": {"a": {}, "b": {}},
        "links": {"a-b": {"km": 50, "kind": "apn"}},
    },
    "cache": {"directory": {"kind": "central", "site": "a"}},
    "workload": {
        "kind": "shared-prefix",
        "provider": "a",
        "asker": "b",
        "prefix_tokens": 8192,
        "requests": 2,
        "warmup": 1,
    },
    "sweep": [{"path": "links.a-b.km", "values": [0, 50, 100], "out_of_range": [600]}],
    "expect": {
        "answers_equal": True,
        "first_logits_within": 1e-4,
        "goodput_ratio_at_least": 0.95,
        "ratio_to_bound_at_most": {"limit": 1.10, "at_km": 100},
        "gain_change_percent_at_most": {"limit": 8, "up_to_km": 100},
        "remote_used": True,
    },
}
MANIFEST: dict[str, Any] = {
    "clock": "virtual",
    "kernel": "6.12.0",
    "byte_scale": 4,
    "seed": 1,
    "model": "geokv-tiny",
    "stands_for": "llama-3.1-8b@h100-sxm",
    "versions": {"geokv": "0.1.0"},
    "profile": {"name": "llama-3.1-8b@h100-sxm"},
}


def rtt_ns(km: float) -> int:
    return round(km * 10_000)


def request(cell: int, km: float, arm: str, repeat: int, *, warmup: bool = False) -> dict[str, Any]:
    """A request in which nothing is wrong. Repeat i takes i ms longer in the queue."""
    spans = {
        "queue_ns": repeat * MS,
        "lookup_ns": 0,
        "fetch_ns": 0,
        "completion_ns": 0,
        "load_ns": 0,
        "prefill_ns": 500 * MS if arm == "recompute" else 10 * MS,
        "first_byte_ns": 1 * MS,
    }
    if arm == "remote-hit":
        spans["lookup_ns"] = rtt_ns(km)
        spans["fetch_ns"] = rtt_ns(km) + TRANSFER_NS
    ttft_ns = sum(spans.values())
    sent_ns = 1_000_000_000 * (1 + repeat)
    remote, local = arm == "remote-hit", arm == "local-hit"
    return {
        "request_id": f"{arm}-{cell}-{'w' if warmup else 'm'}{repeat}",
        "cell": cell,
        "arm": arm,
        "repeat": repeat,
        "warmup": warmup,
        "site": "b",
        "tenant": "default",
        "status": "ok",
        "error": None,
        "prompt_tokens": 8320,
        "cached_tokens": 0 if arm == "recompute" else 8192,
        "output_ids": [10 + repeat, 20, 30, 40],
        "text": "abcd",
        "first_logits": [0.5, -0.25, 1.0],
        "sent_ns": sent_ns,
        "first_ns": sent_ns + ttft_ns,
        "done_ns": sent_ns + ttft_ns + 30 * MS,
        "ttft_ns": ttft_ns,
        "spans": spans,
        "source": "remote" if remote else "device" if local else "none",
        "wire_bytes": WIRE_BYTES if remote else 0,
        "chunks_remote": 32 if remote else 0,
        "chunks_local": 32 if local else 0,
        "misses": {},
        "decode_ns": 30 * MS,
    }


def link(km: float, phase: str) -> dict[str, Any]:
    return {
        "link": "a-b",
        "phase": phase,
        "rtt_asked_ns": rtt_ns(km),
        "rtt_measured_ns": rtt_ns(km) + (1000 if phase == "before" else 3000),
        "goodput_asked_bps": 24_000_000_000,
        "goodput_measured_bps": 23_760_000_000 if phase == "before" else 23_520_000_000,
        "drops": 0,
        "ok": True,
        "problems": [],
    }


def cell_record(index: int, km: float, *, out_of_range: bool = False) -> dict[str, Any]:
    return {
        "cell": index,
        "settings": {"links.a-b.km": km},
        "out_of_range": out_of_range,
        "started_ns": index,
        "ended_ns": index + 1,
        "links": [link(km, "before"), link(km, "after")],
        "path": {
            "rtt_ns": rtt_ns(km),
            "payload_rate_bps": 24_000_000_000,
            "rate_bps": RATE_BPS,
        },
        "integrity": {"a": "ok", "b": "ok"},
    }


class Run:
    """Records in memory, to be spoilt by a test and then written."""

    def __init__(self, scenario: dict[str, Any] | None = None) -> None:
        self.scenario: Scenario = load_scenario(scenario or SCENARIO)
        self.manifest = {**MANIFEST, "scenario_hash": self.scenario.hash}
        self.cells: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        workload = self.scenario.workload
        for cell in self.scenario.cells():
            record = cell_record(cell.index, cell.km, out_of_range=cell.out_of_range)
            self.cells.append({**record, "settings": cell.settings})
            for arm in self.scenario.arms:
                for repeat in range(workload.warmup):
                    self.requests.append(request(cell.index, cell.km, arm, repeat, warmup=True))
                for repeat in range(workload.requests):
                    self.requests.append(request(cell.index, cell.km, arm, repeat))

    def row(self, request_id: str) -> dict[str, Any]:
        return next(row for row in self.requests if row["request_id"] == request_id)

    def write(self, run_dir: Path) -> Path:
        records = run_dir / "records"
        records.mkdir(parents=True, exist_ok=True)
        (run_dir / "scenario.yaml").write_text(self.scenario.to_yaml(), encoding="utf-8")
        (run_dir / "manifest.json").write_text(json.dumps(self.manifest), encoding="utf-8")
        for name, rows in (("requests", self.requests), ("cells", self.cells)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (records / f"{name}.jsonl").write_text(text, encoding="utf-8")
        return run_dir
