"""Packets that vanish: how it is seen that they do, and that they no longer do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence
from geokv.errors import FaultError
from geokv.lab.sight import Sight
from geokv.lab.silence import Silence

_SEEN_WITHIN_S = 2.0
_LOOKS = 2
_AT_ONCE = 32


class Way(NamedTuple):
    """A direction that was silenced, and the eye that looks along it: from this end of it."""

    silence: Silence
    sight: Sight
    end: int


async def see_silence(ways: Sequence[Way], since_ns: int, what: str) -> Evidence:
    """Nothing comes through any of them, and each rule has counted what it took.

    Raises:
        LabError: something does.
        FaultError: the packets were lost elsewhere.
    """
    for start in range(0, len(ways), _AT_ONCE):
        await asyncio.gather(
            *(
                way.sight.until_shut(way.end, looks=_LOOKS, deadline_s=_SEEN_WITHIN_S)
                for way in ways[start : start + _AT_ONCE]
            )
        )
    counts = [way.silence.dropped() for way in ways]
    for way, count in zip(ways, counts, strict=True):
        if not count:
            raise FaultError(f"{way.sight.what}: lost, but not by the rule")
    said = f"nothing passes {what}: {sum(counts)} packets dropped in silence"
    return Evidence(since_ns, said, {"dropped": sum(counts), **_looked(ways)})


async def lift_silence(ways: Sequence[Way], what: str) -> Evidence:
    """Take the rules away; seen by a packet through each way.

    Raises:
        LabError: nothing comes through one of them.
    """
    try:
        total = sum(way.silence.dropped() for way in ways)
        for way in ways:
            way.silence.lift()
        lifted_ns = now_ns()
        for start in range(0, len(ways), _AT_ONCE):
            await asyncio.gather(
                *(
                    way.sight.until_open(way.end, deadline_s=_SEEN_WITHIN_S)
                    for way in ways[start : start + _AT_ONCE]
                )
            )
    finally:
        for way in ways:
            way.sight.close()
    said = f"packets pass {what} again, after {total} were dropped"
    return Evidence(lifted_ns, said, {"dropped": total, **_looked(ways)})


def _looked(ways: Sequence[Way]) -> dict[str, int]:
    sights = {id(way.sight): way.sight for way in ways}.values()
    return {
        "probes": sum(sight.packets for sight in sights),
        "probe_bytes": sum(sight.sent_bytes for sight in sights),
    }
