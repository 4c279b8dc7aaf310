"""What a site does for a drill from inside, armed over its control socket and seen by its count."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from geokv.coordinator.drill.stage import Stage
from geokv.errors import RunError

_LOOK_EVERY_S = 0.01


class Seen(NamedTuple):
    """When something was done for the first time, how often so far, and where."""

    first_ns: int
    times: int
    sites: list[str]


async def counted(stage: Stage, sites: Sequence[str], what: str) -> Seen:
    """How often ``sites`` have done ``what`` by now; 0 times at 0 ns if never. A site that
    does not answer counts as one that did nothing."""
    first_ns = times = 0
    there = []
    for site in sites:
        try:
            found = (await stage.control(site).get("/meddled")).get(what)
        except RunError:
            continue
        if found:
            there.append(site)
            times += found["times"]
            first_ns = min(first_ns or found["first_ns"], found["first_ns"])
    return Seen(first_ns, times, there)


async def first_seen(stage: Stage, sites: Sequence[str], what: str) -> Seen:
    """Wait until one of ``sites`` has done ``what``; the caller's deadline ends this."""
    while not (seen := await counted(stage, sites, what)).times:
        await asyncio.sleep(_LOOK_EVERY_S)
    return seen


def running(stage: Stage, sites: Sequence[str]) -> list[str]:
    """Those of ``sites`` whose process is there."""
    return [site for site in sites if stage.is_up(site)]
