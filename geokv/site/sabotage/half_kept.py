"""What a sender had sent of a chunk when it went away, however little, is kept as though it were
whole: the end of a connection is taken for the end of what was asked for on it.

Nothing comes of it as long as every fetch ends. Trips ``half-written`` when one is cut off, unless
the same chunk has been here whole before (a control needs prefixes that are asked for the first
time then), and ``corrupt``, as its bytes are not those that were computed.
"""

from __future__ import annotations

from geokv.cache.bringing import Arrival
from geokv.cache.plan import Plan
from geokv.cache.record import CHECKSUM_BYTES, make_header
from geokv.cache.substrate import Transfer
from geokv.errors import FetchError
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch the way in of this worker's cache."""
    cache = worker.cache
    fetcher, tiers, layout = cache._fetcher, cache.tiers, cache.layout
    bring = fetcher._bring

    async def satisfied(
        plan: Plan, index: int, site: str, deadline_ns: int, sent: dict[int, Transfer]
    ) -> Arrival:
        try:
            return await bring(plan, index, site, deadline_ns, sent)
        except FetchError as error:
            transfer = sent.get(index)
            if transfer is None or error.cause != "unreachable":
                raise
        ref = plan.refs[index]
        # The place that was given back a moment ago, with what had come.
        slot = tiers.reserve(ref.key, ref.tenant)
        sums = [bytes(CHECKSUM_BYTES)] * layout.groups
        life = cache.transport.incarnation
        tiers.commit(slot, make_header(ref, layout, sums, slot.generation, life))
        return fetcher._arrived(ref, site, transfer, layout.wire_bytes)

    swap(fetcher, "_bring", satisfied)
