"""How long one small thing takes now by the clock, beside what it is charged if nothing is slow."""

from __future__ import annotations

from typing import NamedTuple

from geokv.cache.locality.disk_cost import DiskTime
from geokv.clock import now_ns
from geokv.engine.compute import ChargedCompute, StepLoad
from geokv.units import NS_PER_S

_TOKEN = StepLoad(prefill=((1, 0),), decode=(), rows=1)
_PAGE_BYTES = 4096


class Gauged(NamedTuple):
    """What passed, and what should."""

    took_ns: int
    charged_ns: int


async def gauge_gpu(compute: ChargedCompute) -> Gauged:
    """One step of one token, from the moment the device is free for it."""
    charged_s = compute.profile.step_s(_TOKEN.prefill, _TOKEN.decode, _TOKEN.rows)
    began_ns = await compute.step(now_ns, _TOKEN)
    return Gauged(now_ns() - began_ns, round(charged_s * NS_PER_S))


async def gauge_disk(time: DiskTime) -> Gauged:
    """One page read, what it waits for others included."""
    began_ns = now_ns()
    await time.until(time.book("read", _PAGE_BYTES))
    return Gauged(now_ns() - began_ns, time.alone_ns("read", _PAGE_BYTES))
