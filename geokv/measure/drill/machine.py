"""Did the machine keep up with a drill? Of cells in real time only, and by the same limits as of a
measurement run's.

What was counted inside stands in the history as ``machine``; what the host counted, in
``records/waits.jsonl`` beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from geokv.measure.checker.history import History
from geokv.measure.machine import cpu_bound
from geokv.measure.records import Timers, Wait

_FREEZE = "site-freeze"


@dataclass(frozen=True)
class KeptUp:
    """What was counted of one cell, and why it is void for it: empty where the machine kept up,
    and of a cell in virtual time."""

    timers: Timers | None
    wait: Wait | None
    problems: list[str]


def kept_up(history: History, wait: Wait | None = None) -> KeptUp:
    """Of one cell of a drill.

    Args:
        wait: what the host counted; None where there is the history alone.
    """
    counted = next(history.of("machine"), None)
    if counted is None:
        return KeptUp(None, wait, cpu_bound(None, wait, {}, ""))
    timers = msgspec.convert(counted["timers"], Timers)
    # Who is stopped in the middle of a step ends it late: that is the fault's doing.
    frozen = {event["target"] for event in history.of("fault") if event["kind"] == _FREEZE}
    late_ns = {
        site: late
        for site, late in counted["late_ns"].items()
        if late is not None and site not in frozen
    }
    return KeptUp(timers, wait, cpu_bound(timers, wait, late_ns, counted["compute"]))
