"""A site's tiers as the transport's server sees them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from geokv.cache.filler import group_filler
from geokv.cache.history import History
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import Entry, TierStack
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate import Ended, Served
from geokv.errors import FetchError
from geokv.units import NS_PER_S


class TierSource:
    """Lends pinned chunks of ``tier`` to other sites.

    Args:
        lease_ns: how long one answer may keep its chunk pinned.
        on_absent: told every key that a peer asked for in vain, so that a directory
            that still names this site can be put right.
        knows: whether a tenant is a customer here, in whose name a peer may ask.
        gate: why nothing of (tenant, epoch) may be sent now; empty if it may.
    """

    def __init__(
        self,
        tier: TierStack,
        layout: ChunkLayout,
        incarnation: int,
        lease_ns: int,
        history: History,
        on_absent: Callable[[bytes], None],
        knows: Callable[[str], bool],
        gate: Callable[[str, int], str],
    ) -> None:
        self.served: Counter[str] = Counter()
        self.served_bytes = 0
        self._tier = tier
        self._layout = layout
        self._incarnation = incarnation
        self._lease_ns = lease_ns
        self._history = history
        self._on_absent = on_absent
        self._knows = knows
        self._gate = gate
        self._open: dict[int, tuple[ChunkHeader, Served]] = {}
        self._filler = group_filler(layout)
        # Brought up from the disk for an answer that is still to be opened.
        self._held: dict[bytes, list[tuple[Entry, asyncio.TimerHandle]]] = {}

    def ready(self, key: bytes) -> bool:
        return key in self._tier.dram or not self._tier.on_disk(key)

    async def reach(self, key: bytes, tenant: str) -> None:
        if self.ready(key):
            return
        try:
            async with asyncio.timeout(self._lease_ns / NS_PER_S):
                if not await self._bring_up(key, tenant):
                    return
        except (FetchError, TimeoutError):
            return
        entry = self._tier.dram.pin(key)
        if entry is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._lease_ns / NS_PER_S, self._let_go, key)
            self._held.setdefault(key, []).append((entry, timer))

    async def _bring_up(self, key: bytes, tenant: str) -> bool:
        # What is on its way here from another site is not waited for: that site may be
        # waiting for this one.
        while not self.ready(key):
            try:
                arriving = self._tier.arriving(key, tenant)
            except FetchError as error:
                if error.cause != "full":
                    raise
                await asyncio.shield(self._tier.dram.room())
                continue
            if arriving is None:
                return False
            cause = await asyncio.shield(arriving)
            if cause:
                return False
        return True

    def forgo(self, key: bytes) -> None:
        self._let_go(key)

    def open(self, key: bytes, tenant: str, peer: str) -> Served | str:
        if not self._knows(tenant):
            self._let_go(key)
            return "unauthorised"
        known = self._tier.header(key)
        if known is not None and known.tenant != tenant:
            return "foreign"
        if known is not None and (refused := self._gate(tenant, known.epoch)):
            self._let_go(key)
            return refused
        entry = self._tier.get(key)
        self._let_go(key)
        if entry is None:
            self._on_absent(key)
            return "absent"
        header = entry.header
        packed = header.pack_as(entry.generation, self._incarnation, self._lease_ns)
        pieces: list[memoryview] = []
        for place, fill in zip(self._layout.group_slices, self._filler, strict=True):
            pieces += [entry.view[place], fill]

        def release() -> None:
            self._open.pop(id(served), None)
            entry.release()

        served = Served(packed, pieces, self._lease_ns, release, header.lossy, entry.generation)
        self._open[id(served)] = header, served
        return served

    def revoke(self, tenant: str, epoch: int) -> None:
        """What is being sent of ``tenant`` and is older than ``epoch`` ends now."""
        for header, served in list(self._open.values()):
            if header.tenant == tenant and header.epoch < epoch and served.revoke is not None:
                served.revoke("purged")

    @property
    def lent(self) -> int:
        """Chunks pinned for somebody else now."""
        return len(self._open)

    @property
    def held(self) -> int:
        """Chunks brought up for an answer that is still to be opened."""
        return sum(map(len, self._held.values()))

    def close(self) -> None:
        """Nobody will open what is held any more."""
        for key in list(self._held):
            while key in self._held:
                self._let_go(key)

    def _let_go(self, key: bytes) -> None:
        held = self._held.get(key)
        if held:
            entry, timer = held.pop(0)
            entry.release()
            timer.cancel()
            if not held:
                del self._held[key]

    def closed(self, key: bytes, peer: str, ended: Ended) -> None:
        self.served[ended.cause or "ok"] += 1
        self.served_bytes += ended.sent_bytes
        self._history.note(
            "serve",
            key,
            peer=peer,
            generation=ended.generation,
            incarnation=self._incarnation,
            sent_bytes=ended.sent_bytes,
            total_bytes=ended.total_bytes,
            cause=ended.cause,
        )
