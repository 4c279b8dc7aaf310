"""A site's tiers are filled with chunks that nobody will ever ask for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from geokv.cache.keys import ChunkRef
from geokv.clock import now_ns
from geokv.errors import CacheError
from geokv.site.settings import Tenant
from geokv.site.worker import Worker

_AT_ONCE = 8
_PAUSE_S = 0.001
"""Between so many: requests and peers get their turn, and meet half-finished evictions."""
_TOKEN_IDS = 256


async def storm(worker: Worker, tenant: Tenant, chunks: int, seed: int, deadline_ns: int) -> int:
    """Store and publish ``chunks`` chunks of drawn tokens in the DRAM tier, as if they had
    been computed; what must go for them goes. Their bytes are their keys, over and over.

    Returns:
        How many were stored; fewer where all places were pinned.

    Raises:
        CacheError: the deadline has passed.
    """
    rng = random.Random(seed)
    layout, cache = worker.cache.layout, worker.cache
    stored = 0
    for start in range(0, chunks, _AT_ONCE):
        count = min(_AT_ONCE, chunks - start)
        tokens = [rng.randrange(_TOKEN_IDS) for _ in range(count * layout.chunk_tokens)]
        here = []
        for ref in worker.chunks(tenant, tokens):
            if await cache.store(ref, _filling(ref), publish=False):
                here.append(ref.key)
        await cache.publish(here, deadline_ns)
        stored += len(here)
        if now_ns() >= deadline_ns:
            raise CacheError(f"{stored} of {chunks} chunks were stored by the deadline")
        await asyncio.sleep(_PAUSE_S)
    return stored


def _filling(ref: ChunkRef) -> Callable[[memoryview], None]:
    def fill(view: memoryview) -> None:
        times, rest = divmod(len(view), len(ref.key))
        view[:] = ref.key * times + ref.key[:rest]

    return fill
