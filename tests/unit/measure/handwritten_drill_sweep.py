"""A drill that is swept over distance and load and compares fetching with computing, by hand."""

from __future__ import annotations

import copy
from typing import Any

from handwritten_drill import SCENARIO, START_MS, Drill
from histories import MS, fault

from geokv.measure.checker import Event

LOAD = {"fault": "background", "name": "load", "link": "a-b", "share": 0.5, "at": 0}
SWEEP = [
    {"path": "links.a-b.km", "values": [0, 50]},
    {"path": "timeline.load.share", "values": [0, 0.8]},
]
FIGURE = {
    "kind": "lines", "name": "by_load", "title": "By load", "of": "ttft",
    "x": "timeline.load.share", "lines": "links.a-b.km",
}  # fmt: skip
FETCHED_MS = {0: 18, 0.8: 153}
COMPUTED_MS = 73


def sweep(**changes: Any) -> dict[str, Any]:
    data = copy.deepcopy(SCENARIO)
    data["timeline"] = [{**data["timeline"][0], "expect": {}}, LOAD]
    data["workload"]["probe"] = "recompute"
    return {**data, "sweep": SWEEP, "figures": [FIGURE], "expect": {}, **changes}


def swept_drill(**changes: Any) -> Drill:
    """Even requests fetch, odd ones compute; fetching takes longer under load."""
    made = Drill(sweep(**changes))
    for cell in made.scenario.cells():
        share = cell.settings["timeline.load.share"]
        made.cells[cell.index].append(fault(START_MS, "took-effect", "load", kind="background"))
        for event in made.cells[cell.index]:
            probe(event, FETCHED_MS[share])  # type: ignore[index]
    return made


def probe(event: Event, fetched_ms: float) -> None:
    if event["op"] == "links":
        event["goodput_asked_bps"] = 1_000_000
    if event["op"] not in ("request", "answer"):
        return
    cold = int(event["request_id"][1:]) % 2 == 1
    if event["op"] == "request":
        event["probe"] = "cold" if cold else "cached"
    elif cold:
        event |= {"ttft_ns": COMPUTED_MS * MS, "chunks_remote": 0, "cached_tokens": 0}
    elif event["chunks_remote"]:
        event |= {"ttft_ns": round(fetched_ms * MS), "spans": {"fetch_ns": 4 * MS}}
