"""The site that is asked for a purge forgets, says that all have, and tells nobody.

Trips ``served-after-purge``: what other sites have is used, or still held at the end.
"""

from __future__ import annotations

import msgspec

from geokv.cache.lifetime.purge import Heads, Receipt
from geokv.cache.lifetime.purge_log import Purged
from geokv.errors import RunError
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch this worker's cache and what its heartbeats say.

    Raises:
        RunError: this deployment has no purges.
    """
    cache, purger = worker.cache, worker.cache._forgetting._purger
    if purger is None or cache.membership is None:
        raise RunError(
            "a sabotage cannot be planted: nothing can be purged here",
            "set cache.purge and cache.membership",
        )

    async def quietly(tenant: str, purge_id: str, deadline_ns: int) -> Receipt:
        entry = Purged(purger._log.head + 1, tenant, purge_id)
        purger._log.add([entry])
        purger._apply(entry)
        return Receipt(purge_id, entry.seq, "confirmed", 0)

    swap(cache, "purge", quietly)
    swap(cache.membership, "say", lambda peer: msgspec.msgpack.encode(Heads(0, 0)))
