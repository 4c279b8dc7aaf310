"""A whole drill folder written by hand: a link that is cut from 1000 to 1500 ms, asked 20 times a
second for 3 s, and a control cell in which one chunk was damaged and used all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from handwritten import MANIFEST
from histories import MS, ev, held, life, links, pools, serve, store, use

from geokv.measure.checker import Event
from geokv.scenario import Scenario, load_scenario

SCENARIO: dict[str, Any] = {
    "name": "by-hand",
    "title": "A drill written by hand",
    "question": "Does the arithmetic hold?",
    "topology": {
        "name": "pair",
        "sites": {"a": {}, "b": {}},
        "links": {"a-b": {"km": 50, "kind": "apn"}},
    },
    "deployment": {"content": "synthetic"},
    "cache": {"directory": {"kind": "central", "site": "a"}},
    "workload": {
        "kind": "stream",
        "askers": {"b": 1},
        "providers": ["a"],
        "prefixes": 1,
        "prefix_tokens": 256,
        "requests": 60,
        "rate": 20,
    },
    "timeline": [
        {
            "fault": "link-cut",
            "name": "cut",
            "link": "a-b",
            "at": "1s",
            "for": "500ms",
            "expect": {
                "detected_within": "400ms",
                "first_good_within": "150ms",
                "hit_rate_back_within": "300ms",
                "ttft_back_within": "300ms",
                "fetches_lost_at_most": 12,
            },
        }
    ],
    "expect": {"drill": {"answered": 1.0, "misses_at_least": {"timeout": 5}}},
    "control": {"sabotage": "skip-verify", "fails": ["corrupt"]},
}
OTHER = ["aa", "b0"]
START_MS = 500.0
HIT_MS = 20.0
MISS_MS = 75.0
CUT_MS = (START_MS + 1003, START_MS + 1504)
"""Seen from outside, 3 and 4 ms after it was asked for."""
LATE_BACK = 2
"""Requests after healing whose fetch still fails."""


class Drill:
    """Events in memory, to be spoilt by a test and then written."""

    def __init__(self, scenario: dict[str, Any] | None = None) -> None:
        self.scenario: Scenario = load_scenario(scenario or SCENARIO)
        self.manifest = {**MANIFEST, "scenario_hash": self.scenario.hash}
        self.cells: dict[int, list[Event]] = {
            cell.index: cell_events(cell.index, cell.label, cell.control is not None)
            for cell in self.scenario.cells()
        }

    def of(self, op: str, cell: int = 0, **like: Any) -> list[Event]:
        return [
            event
            for event in self.cells[cell]
            if event["op"] == op and all(event.get(k) == v for k, v in like.items())
        ]

    def write(self, run_dir: Path) -> Path:
        """As a run leaves it: a file per cell and site, not merged yet."""
        records = run_dir / "records"
        records.mkdir(parents=True, exist_ok=True)
        (run_dir / "scenario.yaml").write_text(self.scenario.to_yaml(), encoding="utf-8")
        (run_dir / "manifest.json").write_text(json.dumps(self.manifest), encoding="utf-8")
        outside = {
            "request", "answer", "cold", "fault", "drill-begin", "drill-end", "links", "pools",
            "held", "directory", "integrity", "quiesced", "command", "machine",
        }  # fmt: skip
        for cell, events in self.cells.items():
            files: dict[str, list[str]] = {"a": [], "b": [], "coordinator": []}
            for event in events:
                name = "coordinator" if event["op"] in outside else event["site"]
                files[name].append(json.dumps(event, separators=(",", ":")))
            for name, lines in files.items():
                path = records / f"history-{cell}-{name}.jsonl"
                path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return run_dir


def cell_events(cell: int, label: str, control: bool) -> list[Event]:
    events = [
        ev(0, "drill-begin", label=label, control=control, publish="all"),
        life(1, "a", 1),
        life(1, "b", 1),
        links(2, "before"),
        store(3, "a"),
        ev(3, "publish", "a", key="k1"),
    ]
    for number in range(60):
        events += exchange(number, START_MS + 50 * number, control and number == 7)
    evidence = {"seen": "12 of 12 probes lost"}
    base = {"name": "cut", "kind": "link-cut", "target": "a-b"}
    events += [
        ev(START_MS + 1000, "fault", **base, phase="asked", evidence={}),
        ev(CUT_MS[0], "fault", **base, phase="took-effect", evidence=evidence),
        ev(START_MS + 1500, "fault", **base, phase="heal-asked", evidence={}),
        ev(CUT_MS[1], "fault", **base, phase="healed", evidence={"seen": "12 of 12 came back"}),
    ]
    end = START_MS + 7000
    events.append(ev(end, "quiesced", ok=True, said=""))
    for site in ("a", "b"):
        events.append(ev(end, "integrity", site, result="ok"))
        events.append(pools(end, site))
        events.append(held(end, site, "k1"))
    events.append(ev(end, "directory", "a", here=True, keys={"k1": ["a", "b"]}))
    events.append(links(end + 1, "after"))
    events.append(ev(end + 2, "cold", prompt="q", output_ids=[7, 8, 9], text="abc"))
    events.append(ev(end + 3, "drill-end"))
    return events


def exchange(number: int, sent_ms: float, damaged: bool) -> list[Event]:
    """Emptied, asked, fetched and answered; while the link is cut the fetch times out."""
    name = f"r{number}"
    lost = 1000 <= sent_ms - START_MS < 1500 + 50 * LATE_BACK
    took_ms = MISS_MS if lost else HIT_MS
    done_ms = sent_ms + took_ms
    base = {"request_id": name, "tenant": "t0"}
    events = [
        ev(sent_ms, "drop", "b", key="k1", tier="dram", place=0),
        ev(sent_ms, "request", "b", **base, prompt="q", prompt_tokens=320, prefix=0,
           prefix_tokens=256, deadline_ns=round((sent_ms + 5000) * MS)),
    ]  # fmt: skip
    if lost:
        cause = {"cause": "timeout"}
        events += [
            ev(sent_ms + 50, "fetch", "b", key="k1", source="a", **cause),
            ev(sent_ms + 50, "miss", "b", key="k1", request_id=name, **cause),
            store(sent_ms + 65, "b", tenant="t0"),
        ]
    else:
        sums = {"checksums": OTHER} if damaged else {}
        events += [
            serve(sent_ms + 5, "a"),
            ev(sent_ms + 8, "fetch", "b", key="k1", source="a", cause="", tenant="t0", place=0,
               generation=1, incarnation=1, checksums=["aa", "bb"]),
            use(sent_ms + 9, request_id=name, **sums),
            ev(sent_ms + 9, "publish", "b", key="k1"),
        ]  # fmt: skip
    done_ns = round(done_ms * MS)
    remote = 0 if lost else 1
    answer = {
        "status": "ok", "error": "", "output_ids": [7, 8, 9], "text": "abc",
        "first_ns": done_ns - 2 * MS, "done_ns": done_ns, "ttft_ns": round((took_ms - 2) * MS),
        "cached_tokens": 256 * remote, "chunks_remote": remote, "chunks_local": 0,
        "wire_bytes": 1000 * remote, "misses": {"timeout": 1} if lost else {},
    }  # fmt: skip
    events.append(ev(done_ms + 0.1, "answer", "b", **base, **answer))
    return events
