"""Chunks of this site: kept when they were computed, forgotten when somebody says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import DramTier, TierStack
from geokv.cache.misses import Misses
from geokv.cache.publishing import Publisher
from geokv.cache.record import checksums, make_header
from geokv.errors import CacheError, FetchError


class Holdings:
    """Stores and drops in one site's tiers, and lets others know.

    Args:
        incarnation: of this life of the site, for what it stores.
        on_drop: told of every key that is about to be forgotten.
    """

    def __init__(
        self,
        layout: ChunkLayout,
        tier: DramTier,
        tiers: TierStack,
        history: History,
        misses: Misses,
        publisher: Publisher,
        incarnation: int,
        on_drop: Callable[[bytes], None],
    ) -> None:
        self._layout = layout
        self._tier = tier
        self._tiers = tiers
        self._history = history
        self._misses = misses
        self._publisher = publisher
        self._incarnation = incarnation
        self._on_drop = on_drop

    def store(
        self, ref: ChunkRef, fill: Callable[[memoryview], None], request_id: str = ""
    ) -> bool:
        """See ``SharedCache.store``; nobody is told yet."""
        if ref.key in self._tier or self._tier.pending(ref.key) is not None:
            return False
        try:
            slot = self._tier.reserve(ref.key, ref.tenant)
        except CacheError as error:
            self._misses.count("full", error.message, ref.key)
            return False
        try:
            fill(slot.view)
            sums = checksums(self._layout, slot.view)
        except BaseException:
            self._tier.abort(slot, "store failed")
            raise
        header = make_header(ref, self._layout, sums, slot.generation, self._incarnation)
        self._publisher.stored(ref.key)
        try:
            self._tiers.stored(slot, header)
        except FetchError as error:
            self._misses.count(error.cause, error.message, ref.key)
            self._publisher.gone(ref.key)
            return False
        self._history.note(
            "store",
            ref.key,
            request_id=request_id,
            tier="dram",
            parent=ref.parent.hex(),
            tenant=ref.tenant,
            place=slot.index,
            generation=slot.generation,
            incarnation=header.incarnation,
            checksums=[digest.hex() for digest in sums],
        )
        return True

    async def drop(
        self,
        tier: Literal["dram", "disk", "all"],
        keys: Sequence[bytes] | None,
        deadline_ns: int | None,
        tell: bool,
    ) -> int:
        """See ``SharedCache.drop``."""
        there = dict.fromkeys(self._tiers.keys(tier))
        leaving = [key for key in dict.fromkeys(there if keys is None else keys) if key in there]
        if tell:
            last = [key for key in leaving if not self._tiers.elsewhere(tier, key)]
            await self._publisher.withdraw(last, deadline_ns)
        dropped = self._tiers.drop(tier, leaving)
        for key in leaving:
            self._on_drop(key)
        for key, where, place in dropped:
            self._history.note("drop", key, tier=where, place=place)
            if key not in self._tiers:
                # Another request may have published it between the two.
                self._publisher.gone(key)
        self._tiers.check_deleted(leaving)
        return len(dict.fromkeys(key for key, _, _ in dropped))

    def rotten(self, key: bytes) -> None:
        """Bytes in DRAM are not what they were: nobody may get them any more."""
        for _, where, place in self._tiers.drop("dram", [key]):
            self._history.note("drop", key, tier=where, place=place, cause="corrupt")
        if key not in self._tiers:
            self._publisher.gone(key)
