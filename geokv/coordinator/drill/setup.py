"""What a trace has done to sites before a request: the same steps that a run's own record names."""

from __future__ import annotations

from collections.abc import Sequence

from geokv.coordinator.drill.stage import Stage
from geokv.errors import RunError

_LONG_S = 60.0
FORGET_DEADLINE_S = 0.05


async def do(stage: Stage, steps: Sequence[str]) -> None:
    """One after the other; what a site that is down would have to do is left out.

    ``settle SITE``: all that was answered is stored and published. ``reuse SITE HOW``: what the
    next requests may find cached. ``forget SITE``: all tiers are emptied, and the directory
    knows. ``drop SITE``: device and DRAM are, and the directory hears of it later.

    Raises:
        RunError: a site did not do it in time; except ``drop``, which is noted.
    """
    for step in steps:
        what, site, *how = step.split()
        if not stage.is_up(site):
            continue
        if what == "drop":
            await drop(stage, site)
        elif what == "settle":
            await stage.control(site).patient("/settle", _LONG_S)
        elif what == "reuse":
            await stage.control(site).post("/policy", reuse=how[0])
        else:
            tiers = ["device", "dram", "disk"]
            await stage.control(site).post("/drop", _LONG_S, tiers=tiers)


async def drop(stage: Stage, site: str) -> None:
    """Empty device and DRAM of a site before its next request."""
    try:
        await stage.control(site).post(
            "/drop", FORGET_DEADLINE_S, tiers=["device", "dram"], tell=False
        )
    except RunError as error:
        stage.note("not-forgotten", site, said=error.message)
