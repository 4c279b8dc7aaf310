"""Agents over our own connections: payload goes straight between socket and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.handle import Handle
from geokv.cache.substrate.segments import MemoryKind, Pair, Remote, Segment
from geokv.cache.substrate.tcp.client import Stream
from geokv.cache.substrate.tcp.memory import Exposed
from geokv.cache.substrate.tcp.pool import Job, Peer
from geokv.cache.substrate.tcp.request import Request
from geokv.cache.substrate.tcp.requests import ReadRequest, WriteRequest
from geokv.cache.substrate.tcp.tcp import TcpTransport
from geokv.cache.substrate.tcp.wire import Place
from geokv.cache.substrate.transport import PUSH
from geokv.errors import FetchError, RecordError

# A transfer is cut into pieces of so much, which all stripes share.
_PIECE_BYTES = 4 * 1024 * 1024
_MOST_PLACES = 1024
_Piece: TypeAlias = "list[tuple[Place, memoryview]]"


class TcpBackend:
    """An agent's engine on the connections of ``transport``, which must be serving.

    The agent's name is the site's. A READ is not atomic and raw bytes carry no checksum
    of ours: chunks are verified by whoever reads them (``chunks``).
    """

    name = "tcp"
    kinds: frozenset[MemoryKind] = frozenset({"DRAM"})
    stops = True

    def __init__(self, transport: TcpTransport) -> None:
        self._transport = transport
        self._jobs: dict[Handle, list[Job]] = {}

    @classmethod
    async def agent(cls, transport: TcpTransport) -> Agent:
        """The agent of ``transport``'s site."""
        agent = Agent(
            transport.site,
            cls(transport),
            incarnation=transport.incarnation,
            nonce=transport.nonce,
        )
        transport.memory.on_notice = agent.noticed
        return agent

    def register(self, segment: Segment) -> None:
        self._transport.memory.segments[segment.id] = Exposed(segment.key, segment.view)

    def deregister(self, segment: Segment) -> None:
        del self._transport.memory.segments[segment.id]

    def private(self, segments: Sequence[Segment]) -> bytes:
        return msgspec.msgpack.encode(self._transport.address)

    def load(self, remote: Remote) -> None:
        try:
            address = msgspec.msgpack.decode(remote.private, type=tuple[str, int])
        except msgspec.DecodeError as error:
            raise RecordError(f"no address of agent {remote.name!r} ({error})") from None
        self._transport.move_peer(remote.name, *address)

    def forget(self, remote: Remote) -> None:
        for handle in [one for one in self._jobs if one.remote.name == remote.name]:
            self._stop(handle)

    def post(self, handle: Handle, deadline_ns: int) -> None:
        peer = self._transport.peer(handle.remote.name)
        loop = asyncio.get_running_loop()
        jobs = self._jobs[handle] = []
        for piece in _pieces(handle.pairs):
            result: asyncio.Future[None] = loop.create_future()
            result.add_done_callback(lambda done: self._piece_ended(handle, done))
            jobs.append(_job(handle, piece, deadline_ns, result))
        for job in list(jobs):
            peer.queue(job)

    def _piece_ended(self, handle: Handle, done: asyncio.Future[None]) -> None:
        jobs = self._jobs.get(handle)
        if jobs is None or not any(job.result is done for job in jobs):
            return  # of an earlier posting, or stopped
        error = done.exception() if not done.cancelled() else None
        if isinstance(error, FetchError) or done.cancelled():
            self._stop(handle)
            handle.ended(error if isinstance(error, FetchError) else _given_up())
        elif all(job.result.done() for job in jobs):
            del self._jobs[handle]
            if handle.notice:
                self._transport.peer(handle.remote.name).notify(handle.notice)
            handle.ended(None)

    def _stop(self, handle: Handle) -> None:
        """When this returns, no byte of ``handle`` can land."""
        peer = self._peer(handle)
        for job in self._jobs.pop(handle, []):
            if peer is not None and not job.result.done():
                peer.give_up(job)

    def _peer(self, handle: Handle) -> Peer | None:
        name = handle.remote.name
        return self._transport.peer(name) if name in self._transport.peers else None

    async def settle(self, handle: Handle) -> None:
        self._stop(handle)

    def notify(self, remote: Remote, notice: bytes) -> None:
        self._transport.peer(remote.name).notify(notice)

    async def close(self) -> None:
        """The connections are the transport's and stay."""
        for handle in list(self._jobs):
            self._stop(handle)
            handle.ended(_given_up())


def _given_up() -> FetchError:
    return FetchError("cancelled", "the transfer was given up")


def _job(handle: Handle, piece: _Piece, deadline_ns: int, result: asyncio.Future[None]) -> Job:
    kind = ReadRequest if handle.op == "READ" else WriteRequest
    places, views = [place for place, _ in piece], [view for _, view in piece]

    def start(stream: Stream) -> Request | None:
        if stream.incarnation != handle.remote.incarnation:
            name = handle.remote.name
            result.set_exception(FetchError("stale", f"agent {name!r} has a new life"))
            return None
        request = kind(places, views, deadline_ns, result)
        stream.send(request)
        return request

    return Job(PUSH, deadline_ns, result, start, upload=handle.op == "WRITE")


def _pieces(pairs: Sequence[Pair]) -> Iterator[_Piece]:
    """``pairs``, cut and put together so that no piece has more than its share."""
    piece: _Piece = []
    size = 0
    for pair in pairs:
        done = 0
        while done < pair.length:
            part = min(pair.length - done, _PIECE_BYTES - size)
            at = pair.remote_offset + done
            place = Place(pair.remote.id, pair.remote.key, at, part)
            piece.append((place, pair.view[done : done + part]))
            done += part
            size += part
            if size == _PIECE_BYTES or len(piece) == _MOST_PLACES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece
