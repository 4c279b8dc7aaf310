"""The DRAM tier: fixed slots in one arena that is touched once."""

from __future__ import annotations

from collections.abc import Sequence

from geokv.cache.locality.arena import touched_memory
from geokv.cache.locality.slot import Slot
from geokv.cache.locality.slots import SlotTier
from geokv.cache.record import checksums
from geokv.errors import CacheError


class DramTier(SlotTier):
    """Chunks of one site in host memory. Arguments and errors are ``SlotTier``'s."""

    name = "dram"

    def exposed(self, key: bytes) -> memoryview:
        """The memory of a readable chunk, writable, past every check.

        Only for drills that damage it on purpose: what is written here is served as it is,
        until ``check_integrity(deep=True)`` names it.

        Raises:
            CacheError: it is not here.
        """
        if key not in self._cached:
            raise CacheError(f"chunk {key.hex()} is not here")
        return self._cached[key].view

    def _views(self, count: int) -> Sequence[memoryview]:
        size = self.layout.real_bytes
        arena = touched_memory(count * size)
        return [arena[i * size : (i + 1) * size] for i in range(count)]

    def _wrong_with(self, key: bytes, slot: Slot) -> str:
        header = slot.header
        if header is None or header.key != key:
            return f"dram: chunk {key.hex()} has another chunk's header"
        if checksums(self.layout, slot.readable) != header.checksums:
            return f"dram: chunk {key.hex()} does not match its checksums"
        return ""
