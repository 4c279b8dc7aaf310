"""What was done to a drill while it ran: it then differs from what its scenario says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geokv.measure.checker.history import History, load_histories
from geokv.measure.drill.faults import FaultSeen


def done_by_hand(run_dir: Path, cell: int) -> list[str]:
    """``commands`` of one cell of a finished run; none of a measurement run, which takes none.

    Raises:
        RunError: it has no history, or a broken one.
    """
    return [
        command
        for history in load_histories(run_dir)
        if history.cell == cell
        for command in commands(history)
    ]


def commands(history: History) -> list[str]:
    """What was asked for and done, in words, in the order of asking."""
    return [
        " ".join(filter(None, (str(event["do"]), str(event.get("name", "")))))
        for event in history.of("command")
    ]


def judged_by_hand(faults: Sequence[FaultSeen]) -> list[str]:
    """Names of those made by hand that took effect: each is judged as those of a timeline are.

    One that did nothing promised nothing: it is a warning.
    """
    return [fault.name for fault in faults if fault.by_hand and fault.took_ns is not None]


def in_summary(found: Sequence[list[str]]) -> dict[str, Any] | None:
    """Of the commands of every cell; None where there were none, and the run can be repeated."""
    every = [command for one in found for command in one]
    return {"commands": every, "stopped": "stop" in every} if every else None
