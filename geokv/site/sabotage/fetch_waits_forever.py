"""No deadline ends a fetch, and none ends a request: what does not come is waited for.

Trips ``never-answered``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from geokv.cache.keys import ChunkRef
from geokv.cache.plan import Outcome, Plan
from geokv.engine.generation import TokenEvent
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Ask, Worker
from geokv.units import NS_PER_S

_LONG_NS = 3600 * NS_PER_S
_TROUBLE = ("timeout", "unreachable", "directory")


def plant(worker: Worker) -> None:
    """Wrap the doors of this worker and its cache."""
    cache, answer = worker.cache, worker.answer
    lookup, fetch = cache.lookup, cache.fetch

    async def patient_lookup(
        refs: Sequence[ChunkRef], deadline_ns: int, *args: Any, **more: Any
    ) -> Plan:
        plan = await lookup(refs, deadline_ns, *args, **more)
        await _unless_well(plan.misses)
        return plan

    async def patient_fetch(*args: Any, **more: Any) -> Outcome:
        outcome = await fetch(*args, **more)
        await _unless_well(outcome.misses)
        return outcome

    def patient_answer(ask: Ask) -> AsyncGenerator[TokenEvent, None]:
        return answer(replace(ask, deadline_ns=ask.deadline_ns + _LONG_NS))

    swap(cache, "lookup", patient_lookup)
    swap(cache, "fetch", patient_fetch)
    swap(worker, "answer", patient_answer)


async def _unless_well(misses: Counter[str]) -> None:
    """Wait for what will not come, for as long as somebody asks."""
    if any(misses[cause] for cause in _TROUBLE):
        await asyncio.Event().wait()
