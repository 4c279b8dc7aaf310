"""What becomes of a chunk that came damaged: its sender is told, and looks whether it lies damaged.

A chunk that this site uses itself it compares with its checksums then. One that it only sends
it does not: that would cost every answer a pass over its bytes, and whoever receives it makes
that pass anyway. So the receiver says what it found; the sender believes its own bytes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from geokv.cache.keys import KEY_BYTES, ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import TierStack
from geokv.cache.ownership.directory import Spawn
from geokv.cache.record import checksums
from geokv.cache.substrate import Handler, Transport
from geokv.cache.substrate.transport import Caller
from geokv.clock import now_ns
from geokv.errors import CacheError, RecordError
from geokv.units import NS_PER_S

_METHOD = "chunk.doubt"
_LIMIT_NS = NS_PER_S


class Doubter:
    """One site's doubts about others' chunks, and its ear for theirs.

    Args:
        rotten: told a key whose bytes in DRAM are not what its checksums say.

    Attributes:
        counters: ``told``, ``untold``; of what others doubt here ``sound``, ``rotten``, ``gone``.
    """

    def __init__(
        self,
        tiers: TierStack,
        layout: ChunkLayout,
        transport: Transport,
        spawn: Spawn,
        rotten: Callable[[bytes], None],
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._tiers = tiers
        self._layout = layout
        self._transport = transport
        self._spawn = spawn
        self._rotten = rotten

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Calls that this site must answer."""
        return {_METHOD: self._asked}

    def doubt(self, site: str, ref: ChunkRef) -> None:
        """What ``site`` sent for ``ref`` was damaged; nobody waits until it knows."""
        self._spawn(self._tell(site, ref.key))

    async def _tell(self, site: str, key: bytes) -> None:
        try:
            await self._transport.call(site, _METHOD, key, now_ns() + _LIMIT_NS)
        except CacheError:
            self.counters["untold"] += 1
        else:
            self.counters["told"] += 1

    async def _asked(self, caller: Caller, body: bytes) -> bytes:
        if len(body) != KEY_BYTES:
            raise RecordError(f"a doubt about a key of {len(body)} bytes")
        entry = self._tiers.dram.pin(body)
        if entry is None:
            # What lies on the disk is compared when it comes up.
            self.counters["gone"] += 1
            return b""
        with entry:
            sound = checksums(self._layout, entry.view) == entry.header.checksums
            self.counters["sound" if sound else "rotten"] += 1
            if not sound:
                self._rotten(body)
        return b""
