"""``events.jsonl``: every step of a run as it happens, one JSON line each (docs/live.md)."""

from __future__ import annotations

import fcntl
import json
import time
from pathlib import Path
from typing import Any

from geokv.lab.plan import LabPlan, compile_plan
from geokv.scenario import Scenario

EVENTS = "events.jsonl"
FORMAT = 1
"""Of the file; a change that an old reader would misread makes it another number."""


class EventLog:
    """Writes the file of one run; each line is on its way to disk before ``add`` returns.

    The open file is locked (``flock``) for as long as the run goes on, so that a reader knows a
    run that was killed from one that is slow.

    Raises:
        OSError: the folder cannot be written to, or is full.
    """

    def __init__(self, run_dir: Path) -> None:
        self._started = time.monotonic()
        self._stream = (run_dir / EVENTS).open("x", encoding="utf-8", buffering=1)
        fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def add(self, event: dict[str, Any]) -> None:
        """One line more, with ``real_s``: real seconds since the run was begun."""
        real_s = round(time.monotonic() - self._started, 3)
        line = {"event": event["event"], "real_s": real_s, **event}
        self._stream.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Nothing more comes; harmless when repeated."""
        self._stream.close()


def describe_run(
    scenario: Scenario, kernel: str, parts: int, pace: float | None, live: bool
) -> dict[str, Any]:
    """The first line of a run's events.

    Args:
        kernel: as in the manifest.
        pace: virtual seconds per real second; None is as fast as it goes.
        live: whether samples come, and commands are taken.
    """
    workload = scenario.workload
    cells = scenario.cells()
    sites = scenario.topology.sites
    arms = [] if scenario.is_drill else list(scenario.arms)
    return {
        "event": "run",
        "format": FORMAT,
        "scenario": {
            "name": scenario.name,
            "title": scenario.title,
            "question": scenario.question,
            "hash": scenario.hash,
        },
        "drill": scenario.is_drill,
        "clock": scenario.clock,
        "pace": pace,
        "live": live,
        "seed": scenario.seed,
        "kernel": kernel,
        "parts": parts,
        "byte_scale": scenario.deployment.byte_scale,
        "topology": {
            "name": scenario.topology.name,
            "sites": [{"site": name, "title": one.title} for name, one in sites.items()],
            "links": planned_links(compile_plan(cells[0].topology, scenario.deployment.byte_scale)),
        },
        "cells": [
            {"cell": cell.index, "label": cell.label, "control": cell.control is not None}
            for cell in cells
        ],
        "arms": arms,
        "requests": workload.requests,
        "requests_total": len(cells) * max(1, len(arms)) * workload.requests,
        "timeline": [
            event.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"expect"})
            for event in scenario.timeline
        ],
    }


def planned_links(plan: LabPlan) -> list[dict[str, Any]]:
    """The links of a plan; their rates are those of the deployment the run stands for."""
    return [
        {
            "link": link.link,
            "a": link.a,
            "b": link.b,
            "km": link.km,
            "kind": link.kind,
            "rate_bps": link.rate_bps * plan.byte_scale,
            "rtt_ns": link.rtt_ns,
        }
        for link in plan.links.values()
    ]
