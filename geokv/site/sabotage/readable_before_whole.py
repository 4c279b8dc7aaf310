"""A chunk is readable as soon as it has been asked for, while its bytes are still on their way.

Trips ``half-written``: what is used was never said to be whole there. What the place held before
is what the engine gets, so ``corrupt`` and ``answered-wrongly`` mostly fail with it. Fetches
that overlap with computing are left alone.
"""

from __future__ import annotations

import asyncio

from geokv.cache.bringing import Arrival
from geokv.cache.plan import Plan
from geokv.cache.record import CHECKSUM_BYTES, ChunkHeader, make_header
from geokv.cache.substrate import Transfer
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch the way in of this worker's cache."""
    cache = worker.cache
    fetcher, tiers, layout = cache._fetcher, cache.tiers, cache.layout

    async def hasty(
        plan: Plan, index: int, site: str, deadline_ns: int, sent: dict[int, Transfer]
    ) -> Arrival:
        ref = plan.refs[index]
        slot = tiers.reserve(ref.key, ref.tenant)
        transfer = cache.transport.submit(site, ref, slot.view, deadline_ns)
        sent[index] = transfer

        def came(done: asyncio.Future[ChunkHeader]) -> None:
            if not done.cancelled() and done.exception() is None:
                fetcher._note_fetch(ref, plan, index, site, done.result(), slot, [transfer])

        transfer.done.add_done_callback(came)
        sums = [bytes(CHECKSUM_BYTES)] * layout.groups
        life = cache.transport.incarnation
        tiers.commit(slot, make_header(ref, layout, sums, slot.generation, life))
        return fetcher._arrived(ref, site, transfer, layout.wire_bytes)

    swap(fetcher, "_bring", hasty)
