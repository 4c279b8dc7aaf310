"""The lines that a job says its steps in, told from all others that may be on its output.

Code of a user runs in the same process, and what it prints is anybody's guess: ``5``, ``null``,
``{"a": 1}``. Such a line is text; it ends no run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from geokv.errors import GeokvError

_CARRY: dict[str, dict[str, type]] = {
    "cell": {"cell": int, "label": str},
    "check": {"phase": str},
    "error": {"message": str, "hint": str, "exit_code": int},
    "fault": {"name": str, "phase": str},
    "folder": {"path": str, "parts": int},
}
"""What steps carry that the host acts on; without it a line only looks like one of them."""


def step_of(line: str) -> dict[str, Any] | None:
    """The step that a line is; None of any other line."""
    try:
        step = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(step, dict) or not isinstance(step.get("event"), str):
        return None
    carries = _CARRY.get(step["event"], {})
    whole = all(isinstance(step.get(name), kind) for name, kind in carries.items())
    return step if whole else None


def taker(steps: list[dict[str, Any]], show: Callable[[str], None]) -> Callable[[str], None]:
    """What takes the lines of a job: steps into the list, any other to where they are shown."""

    def take(line: str) -> None:
        step = step_of(line)
        if step is None:
            show(line)
        else:
            steps.append(step)

    return take


def error_of(step: dict[str, Any], kind: type[GeokvError]) -> GeokvError | None:
    """The error that a step tells, with its words and its exit code; None of any other step."""
    if step["event"] != "error":
        return None
    error = kind(step["message"], step["hint"])
    error.exit_code = step["exit_code"]
    return error
