"""``links.json`` of a drill: what the coordinator saw of every link, before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geokv.measure.checker.history import Event, load_histories


def to_drill_links(run_dir: Path, summary: dict[str, Any]) -> str:
    """JSON text, the keys of a measurement's ``links.json``; what a drill does not record is null.

    Raises:
        RunError: no history, or a broken one.
    """
    cells = {cell["cell"]: cell for cell in summary["cells"]}
    rows = []
    for history in load_histories(run_dir):
        cell = cells.get(history.cell or 0)
        if cell is None:
            continue
        rows.append(
            {
                "cell": cell["cell"],
                "label": cell["label"],
                "control": cell["control"],
                "settings": cell["settings"],
                "out_of_range": cell["out_of_range"],
                "path": None,
                "links": [_check(event) for event in history.of("links")],
            }
        )
    rows.sort(key=lambda row: row["cell"])
    return json.dumps({"cells": rows}, indent=2, ensure_ascii=False) + "\n"


def _check(event: Event) -> dict[str, Any]:
    return {
        "link": event["link"],
        "phase": event["phase"],
        "rtt_asked_ns": event.get("rtt_asked_ns"),
        "rtt_measured_ns": event.get("rtt_ns"),
        "goodput_asked_bps": event.get("goodput_asked_bps"),
        "goodput_measured_bps": event.get("goodput_bps"),
        "drops": None,
        "ok": event["ok"],
        "problems": event.get("problems", []),
    }
