"""Did the machine keep up? Of cells in real time only: a run that waited for a processor measured
the machine and what else it did, and is void.

Three counters, from both sides:

- **timers** that came late, inside: a process that does nothing but be woken every 10 ms. It is
  late whoever holds the processor, other programs or the run itself, which must not with
  ``compute: charged``; with ``compute: real`` it does so on purpose, and the count is only shown.
- **computing** that outlasted what was charged for it, inside, by each site.
- **run queue**, outside: how long the run's own threads were ready and had none, and others had it.
  Both are needed: threads of one run wait for each other, too, at every hand-over of a VM between
  its kernel and its processes, and others do no harm while the run has nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geokv.measure.records import Timers, Wait
from geokv.measure.rounded import to_ms

LATE_SHARE = 0.05
"""Of all wake-ups; the tolerance that links have on the wall clock, too."""
WAIT_SHARE = 0.05
"""Of the time from the cell's beginning to its last answer, times the processors there were.
``Wait.share`` is what others can have cost at most."""
OUTLASTED_AT_MOST_NS = 1_000_000


def cpu_bound(
    timers: Timers | None, wait: Wait | None, late_ns: Mapping[str, int], compute: str
) -> list[str]:
    """Why a cell's times are not what they would be on a machine that keeps up; empty if it did.

    Args:
        late_ns: by site.
        compute: what computes for ``real`` holds the processor on purpose: there only others can
            be at fault.
    """
    found = []
    if compute == "real":
        timers = None
    if timers is not None and timers.timers and timers.late / timers.timers > LATE_SHARE:
        found.append(
            f"CPU-bound: timers: {timers.late} of {timers.timers} wake-ups came over 1 ms late "
            f"({timers.late / timers.timers:.1%}, at most {LATE_SHARE:.0%}; the worst by "
            f"{timers.worst_ns / 1e6:.1f} ms)"
        )
    if wait is not None and wait.share > WAIT_SHARE:
        found.append(
            f"CPU-bound: run queue: ready and without a processor, which others had, for "
            f"{wait.share:.1%} of the time (at most {WAIT_SHARE:.0%})"
        )
    found += [
        f"CPU-bound: site {site}: computing outlasted its charge by {late / 1e6:.1f} ms, so its "
        "times are this machine's and not the profile's"
        for site, late in sorted(late_ns.items())
        if late > OUTLASTED_AT_MOST_NS
    ]
    return found


def shown(timers: Timers | None, wait: Wait | None) -> dict[str, Any]:
    """As ``summary.json`` has it; nothing of a cell in virtual time."""
    if timers is None and wait is None:
        return {}
    return {
        "machine": {
            "timers": timers.timers if timers else None,
            "timers_late": timers.late if timers else None,
            "timer_worst_ms": to_ms(timers.worst_ns if timers else None),
            "run_queue_wait_ms": to_ms(wait.run_queue_wait_ns if wait else None),
            "others_ms": to_ms(wait.others_ns if wait else None),
            "run_queue_share": round(wait.share, 4) if wait else None,
        }
    }
