"""Every checker once more over the history of a finished run, of whatever kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.errors import ConfigError
from geokv.measure.checker import check_all
from geokv.measure.checker.history import History, load_histories
from geokv.measure.drill.machine import kept_up
from geokv.measure.drill.soundness import examine


def recheck(run_dir: Path) -> dict[str, Any]:
    """``verdict`` and ``cells`` with ``label``, ``control``, ``events``, ``lines`` and, where the
    machine did not keep up, ``problems``; excerpts are whole. Nothing but the history is read. As
    the verdict of a run it is ``invalid`` where a link was off its plan or, in real time, by what
    was counted inside the machine did not keep up, whatever else is broken.

    Raises:
        ConfigError: no such folder.
        RunError: it has no history, or a broken one.
    """
    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: no such run folder", "runs are kept under results/")
    cells = [_checked(history) for history in load_histories(run_dir)]
    lines = [line for cell in cells if not cell["control"] for line in cell["lines"]]
    counted = [line["ok"] for line in lines]
    verdict = "pass" if counted else "unknown"
    off = any(line["name"] == "links" and line["ok"] is False for line in lines)
    if off or any(cell["problems"] for cell in cells):
        verdict = "invalid"
    elif False in counted:
        verdict = "fail"
    elif None in counted:
        verdict = "unknown"
    return {"verdict": verdict, "cells": cells}


def _checked(history: History) -> dict[str, Any]:
    begun = next(history.of("drill-begin"), {})
    lines = [*check_all(history), *(examine(history) if history.drill else [])]
    return {
        "cell": history.cell,
        "label": history.label,
        "drill": history.drill,
        "control": bool(begun.get("control")),
        "sabotage": begun.get("sabotage") or None,
        "events": len(history.events),
        "problems": kept_up(history).problems,
        "lines": [
            {
                "name": line.name,
                "inv": line.inv,
                "ok": line.ok,
                "said": line.said,
                "excerpt": line.excerpt,
            }
            for line in lines
        ],
    }
