"""A tier as the transport's server sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from geokv.cache.filler import group_filler
from geokv.cache.history import History
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import DramTier
from geokv.cache.substrate import Served


class TierSource:
    """Lends pinned chunks of ``tier`` to other sites.

    Args:
        lease_ns: how long one answer may keep its chunk pinned.
        on_absent: told every key that a peer asked for in vain, so that a directory
            that still names this site can be put right.
    """

    def __init__(
        self,
        tier: DramTier,
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

    async def reach(self, key: bytes, tenant: str) -> None:
        return None

    def open(self, key: bytes, tenant: str, peer: str) -> Served | str:
        entry = self._tier.get(key)
        if entry is None:
            self._on_absent(key)
            return "absent"
        if entry.header.tenant != tenant:
            entry.release()
            return "foreign"
        header = entry.header.stamped(entry.generation, self._incarnation, self._lease_ns)
        pieces: list[memoryview] = []
        for place, fill in zip(self._layout.group_slices, self._filler, strict=True):
            pieces += [entry.view[place], fill]
        return Served(header.pack(), pieces, self._lease_ns, entry.release)

    def closed(self, key: bytes, peer: str, sent_bytes: int, cause: str) -> None:
        self.served[cause or "ok"] += 1
        self.served_bytes += sent_bytes
        self._history.note("serve", key, peer=peer, sent_bytes=sent_bytes, cause=cause)
