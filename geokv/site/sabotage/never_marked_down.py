"""A peer that does not answer is asked again by every request, and each pays its deadline.

Trips ``expect:FAULT.detected_within``, where that is shorter than the fetch deadline, and
``expect:ttft_p99_at_most`` or ``expect:FAULT.fetches_lost_at_most`` where they allow for the
first requests alone.
"""

from __future__ import annotations

from typing import Any

from geokv.cache.membership import Breaker
from geokv.site.sabotage._swap import swap
from geokv.site.worker import Worker


def plant(worker: Worker) -> None:
    """Patch the process: no breaker opens, and heartbeats in vain have no consequence."""

    def nothing(*_: Any) -> None:
        return None

    swap(Breaker, "trip", nothing)
    swap(Breaker, "hold", nothing)
    membership = worker.cache.membership
    if membership is not None:
        swap(membership, "_on_down", nothing)
        swap(membership, "_on_up", nothing)
