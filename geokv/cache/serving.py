"""A site's tiers as the transport's server sees them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from geokv.cache.filler import group_filler
from geokv.cache.history import History
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import TierStack
from geokv.cache.substrate import Served
from geokv.clock import now_ns
from geokv.errors import FetchError
from geokv.units import NS_PER_S


class TierSource:
    """Lends pinned chunks of ``tier`` to other sites.

    Args:
        lease_ns: how long one answer may keep its chunk pinned.
        on_absent: told every key that a peer asked for in vain, so that a directory
            that still names this site can be put right.
    """

    def __init__(
        self,
        tier: TierStack,
        layout: ChunkLayout,
        incarnation: int,
        lease_ns: int,
        history: History,
        on_absent: Callable[[bytes], None],
    ) -> None:
        self.served: Counter[str] = Counter()
        self.served_bytes = 0
        self._tier = tier
        self._layout = layout
        self._incarnation = incarnation
        self._lease_ns = lease_ns
        self._history = history
        self._on_absent = on_absent
        self._filler = group_filler(layout)

    def ready(self, key: bytes) -> bool:
        return key in self._tier

    async def reach(self, key: bytes, tenant: str) -> None:
        until_ns = now_ns() + self._lease_ns
        # What is on its way here from another site is not waited for: that site may be
        # waiting for this one.
        while key not in self._tier.dram and self._tier.on_disk(key):
            try:
                arriving = self._tier.arriving(key, tenant)
                if arriving is None:
                    return
                async with asyncio.timeout_at(until_ns / NS_PER_S):
                    cause = await asyncio.shield(arriving)
            except (FetchError, TimeoutError):
                return
            if cause:
                return

    def open(self, key: bytes, tenant: str, peer: str) -> Served | str:
        known = self._tier.header(key)
        if known is not None and known.tenant != tenant:
            return "foreign"
        entry = self._tier.get(key)
        if entry is None:
            self._on_absent(key)
            return "absent"
        header = entry.header
        packed = header.pack_as(entry.generation, self._incarnation, self._lease_ns)
        pieces: list[memoryview] = []
        for place, fill in zip(self._layout.group_slices, self._filler, strict=True):
            pieces += [entry.view[place], fill]
        return Served(packed, pieces, self._lease_ns, entry.release, header.lossy)

    def closed(self, key: bytes, peer: str, sent_bytes: int, cause: str) -> None:
        self.served[cause or "ok"] += 1
        self.served_bytes += sent_bytes
        self._history.note("serve", key, peer=peer, sent_bytes=sent_bytes, cause=cause)
