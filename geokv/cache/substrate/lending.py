"""The owner's side of chunks over agents: opened by a call, read by the other agent's
engine, let go by its notice or when the lease ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from geokv.cache.layout import ChunkLayout
from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.segments import Segment
from geokv.cache.substrate.transport import ChunkSource, Ended, Served
from geokv.errors import RecordError
from geokv.units import NS_PER_S

OPEN = "substrate.open"
ASK = "substrate.metadata"
LEASE_BYTES = 8


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A chunk, or one layer group of it (-1: all)."""

    key: bytes
    tenant: str
    group: int = -1
    exact: bool = True


class Lent(msgspec.Struct, frozen=True, array_like=True):
    """One stretch of the owner's registered memory."""

    segment: int
    offset: int
    length: int

    @property
    def key(self) -> tuple[int, int, int]:
        """What tells it from other stretches: segment, offset, length."""
        return self.segment, self.offset, self.length


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """A chunk that is pinned for the asker, or the cause why not.

    Args:
        lease: to be told back when it was read.
        places: real KV and filler of each group, without empty ones.
    """

    cause: str
    header: bytes = b""
    lease: bytes = b""
    places: tuple[Lent, ...] = ()


@dataclass(eq=False)
class _Lease:
    peer: str
    key: bytes
    n_bytes: int
    served: Served
    timer: asyncio.TimerHandle


class Lender:
    """Lends a site's chunks to other agents.

    Args:
        find: the registered segment a view lies in, and where.
    """

    def __init__(
        self,
        agent: Agent,
        layout: ChunkLayout,
        source: ChunkSource,
        find: Callable[[memoryview], tuple[Segment, int]],
    ) -> None:
        self._agent = agent
        self._layout = layout
        self._source = source
        self._find = find
        self._leases: dict[bytes, _Lease] = {}
        self._next = 1

    @property
    def open_leases(self) -> int:
        """Chunks that are pinned for somebody now."""
        return len(self._leases)

    async def open(self, peer: str, body: bytes) -> bytes:
        """Answer to a call of ``OPEN``.

        Raises:
            RecordError: it asks for nothing that could be.
        """
        try:
            want = msgspec.msgpack.decode(body, type=Wanted)
        except msgspec.DecodeError as error:
            raise RecordError(f"no request for a chunk ({error})") from None
        await self._source.reach(want.key, want.tenant)
        served = self._source.open(want.key, want.tenant, peer)
        if not isinstance(served, str):
            served = served.part(want.group, self._layout.groups, want.exact)
        if isinstance(served, str):
            self._source.closed(want.key, peer, Ended(served))
            return msgspec.msgpack.encode(Opened(served))
        return msgspec.msgpack.encode(self._lend(peer, want, served))

    def _lend(self, peer: str, want: Wanted, served: Served) -> Opened:
        places = []
        for piece in served.pieces:
            if len(piece):
                segment, offset = self._find(piece)
                places.append(Lent(segment.id, offset, len(piece)))
        lease = self._next.to_bytes(LEASE_BYTES, "big")
        self._next += 1
        loop = asyncio.get_running_loop()
        timer = loop.call_later(served.lease_ns / NS_PER_S, self._end, lease, "lease")
        n_bytes = sum(place.length for place in places)
        self._leases[lease] = _Lease(peer, want.key, n_bytes, served, timer)
        return Opened("", served.header, lease, tuple(places))

    def noticed(self, name: str, notice: bytes) -> None:
        """The other agent has read what it was lent."""
        lease = self._leases.get(notice)
        if lease is not None and lease.peer == name:
            self._end(notice, "")

    def _end(self, notice: bytes, cause: str) -> None:
        lease = self._leases.pop(notice)
        lease.timer.cancel()
        lease.served.release()
        sent = 0 if cause else lease.n_bytes
        ended = Ended(cause, sent, lease.n_bytes, lease.served.generation)
        self._source.closed(lease.key, lease.peer, ended)

    def close(self) -> None:
        """Let go of everything."""
        for notice in list(self._leases):
            self._end(notice, "cancelled")
