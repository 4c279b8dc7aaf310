"""Every pool of a site in one shape, for whoever adds them up (INV-5)."""

from __future__ import annotations

from geokv.cache.locality.slots import SlotTier
from geokv.site.worker import Worker


def pools(worker: Worker) -> dict[str, dict[str, int]]:
    """Pool → ``total``, ``free``, ``cached``, ``pinned``, ``reserved``, ``leases``, ``promised``.

    Places, which are blocks on the device: free + cached + pinned + reserved = total. What
    is pinned is not counted as cached, whether it is readable for newcomers or not.
    ``leases`` are pins for other sites, ``promised`` tokens that were promised to a
    sequence and have not all come.
    """
    engine, cache = worker.engine, worker.cache
    blocks = engine.stats()
    found = {
        "device": {
            "total": blocks.blocks,
            "free": blocks.blocks_free,
            "cached": blocks.blocks_cached,
            "pinned": blocks.blocks_pinned,
            "reserved": 0,
            "leases": 0,
            "promised": engine.promised_tokens,
        },
        "dram": {**_places(cache.tier), "leases": cache.leases, "promised": 0},
    }
    if cache.tiers.disk is not None:
        found["disk"] = {**_places(cache.tiers.disk), "leases": 0, "promised": 0}
    return found


def _places(tier: SlotTier) -> dict[str, int]:
    stats = tier.stats()
    pinned = stats["pinned"]
    # What is leaving is there only for its readers.
    return {
        "total": stats["slots"] + stats["spare"],
        "free": stats["free"],
        "cached": stats["cached"] + stats["leaving"] - pinned,
        "pinned": pinned,
        "reserved": stats["reserved"],
    }
