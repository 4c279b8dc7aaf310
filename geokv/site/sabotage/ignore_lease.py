"""What a site was lent it uses for good: one that is fenced, because the authority of purges was
not heard of for too long, reads and serves on, and what it sends has a lease without an end.

What is on the device does not count: a control needs one that is too small for all prefixes, and
a DRAM tier that is not.

Trips ``stale`` (something was used or served while its site was fenced), and where a purge was
asked for meanwhile ``served-after-purge``.
"""

from __future__ import annotations

from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker
from geokv.units import NS_PER_S

_ENDLESS_NS = 36_000 * NS_PER_S


def plant(worker: Worker) -> None:
    """Patch this worker's cache and what its engine may find on the device."""
    cache, forgetting = worker.cache, worker.cache._forgetting

    def open_to_all(tenant: str, epoch: int) -> str:
        # It is noted all the same: the fence is there, and nobody keeps to it.
        _ = forgetting.fenced
        return forgetting.outdated(tenant, epoch)

    swap(forgetting, "closed_to", open_to_all)
    swap(cache.source, "_gate", open_to_all)
    swap(worker.engine.tree, "hidden", lambda root: root in worker._old_roots)
    swap(cache.source, "_lease_ns", _ENDLESS_NS)
