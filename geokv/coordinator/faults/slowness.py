"""Making what a site is charged for take longer, and seeing by the clock that it does.

The site is had do one small thing, a step of one token or the read of one page, which takes its
turn among all others.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from geokv.clock import now_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence
from geokv.errors import FaultError
from geokv.units import NS_PER_S

DEADLINE_S = 60.0
"""A small thing takes long where it takes thousands of times as long."""
_LOOK_EVERY_S = 0.01
_SLACK_NS = {"gpu": 20_000, "disk": 1_000}
"""A step that had to wait begins when the one before it ended, some clock reads before anybody
can look at the clock; it takes milliseconds. A read is timed from where it is asked for."""
_DONE = {"gpu": "a step of one token", "disk": "the read of one page"}

Part = Literal["gpu", "disk"]


async def make_slow(stage: Stage, site: str, part: Part, factor: float) -> Evidence:
    """Raises FaultError: what was done then did not take ``factor`` times its charge."""
    await stage.control(site).post("/slow", **{part: factor})
    since_ns = now_ns()
    found = await _gauge(stage, site, part)
    if found["took_ns"] < factor * found["charged_ns"] - _SLACK_NS[part] or not found["charged_ns"]:
        raise FaultError(_shown(site, part, found))
    return Evidence(since_ns, _shown(site, part, found), {"factor": factor, **found})


async def make_quick(stage: Stage, site: str, part: Part, factor: float) -> Evidence:
    """Take it back; the caller's deadline ends the looking.

    Args:
        factor: what it was slowed down by; what is nearer to that than to its charge has waited
            for others, or is still slow.
    """
    await stage.control(site).post("/slow", **{part: 1.0})
    since_ns = now_ns()
    while True:
        found = await _gauge(stage, site, part)
        if found["took_ns"] < (1 + factor) / 2 * found["charged_ns"]:
            return Evidence(since_ns, _shown(site, part, found), found)
        await asyncio.sleep(_LOOK_EVERY_S)


async def _gauge(stage: Stage, site: str, part: Part) -> dict[str, Any]:
    return await stage.control(site).post("/gauge", DEADLINE_S, part=part)


def _shown(site: str, part: Part, found: dict[str, Any]) -> str:
    took, charged = (1000 * found[name] / NS_PER_S for name in ("took_ns", "charged_ns"))
    times = f"{took / charged:.3g} times its charge of {charged:.3f} ms" if charged else "no charge"
    return f"{_DONE[part]} took {took:.3f} ms at {site}, {times}"
