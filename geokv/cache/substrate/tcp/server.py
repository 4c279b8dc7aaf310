"""The answering end: chunks, filler and calls for authenticated sites.

One task per connection answers one request after the other; requests behind it wait
in the socket, where TCP's window limits them, so a client can hold no memory here. A
chunk is pinned while it is sent and at most for its lease: then the connection is
closed, because half a record can be of no use to anybody.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from geokv.cache.filler import filler
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.handshake import Identity, Session, admit, receive_frame
from geokv.cache.substrate.tcp.sockets import SocketOptions, listen, tcp_info
from geokv.cache.substrate.transport import Caller, ChunkSource, Handler
from geokv.errors import FetchError, GeokvError, RecordError
from geokv.units import NS_PER_S

_BACKLOG = 256
_FILL_PIECE_BYTES = 1024 * 1024
_MAX_FILL_BYTES = 2**34


class KvServer:
    """Serves one site's chunks.

    Args:
        max_connections: further ones are closed at once and counted.
        handshake_s: how long a stranger may take to prove himself.
        idle_s: a connection without a request for so long is closed.
        send_s: how long an answer that is no chunk may take (chunks have leases).
    """

    def __init__(
        self,
        me: Identity,
        source: ChunkSource,
        handlers: Mapping[str, Handler],
        options: SocketOptions,
        *,
        max_connections: int = 1024,
        handshake_s: float = 10.0,
        idle_s: float = 3600.0,
        send_s: float = 60.0,
    ) -> None:
        self.causes: Counter[str] = Counter()
        self._me = me
        self._source = source
        self._handlers = handlers
        self._options = options
        self._max_connections = max_connections
        self._handshake_s = handshake_s
        self._idle_s = idle_s
        self._send_s = send_s
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._channels: dict[asyncio.Task[None], Channel] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            CacheError: the address cannot be bound.
        """
        self._listener = listen(host, port, self._options, _BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._listener))
        return int(self._listener.getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        tasks = list(self._channels)
        for channel in self._channels.values():
            channel.close(FetchError("unreachable", "closed by this site"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def stats(self) -> dict[str, Any]:
        """Open connections, why others ended, and the kernel's view of the senders."""
        return {
            "connections": len(self._channels),
            "causes": dict(self.causes),
            "sockets": [tcp_info(channel.sock) for channel in self._channels.values()],
        }

    # -- connections -----------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors, or the client has gone: others must still be served.
                self.causes[f"accept: {error.strerror}"] += 1
                await asyncio.sleep(0.1)
                continue
            if len(self._channels) >= self._max_connections:
                self.causes["too many connections"] += 1
                sock.close()
                continue
            # Linux hands the listener's socket options on to what it accepts.
            channel = Channel(sock, loop)
            task = loop.create_task(self._converse(channel))
            self._channels[task] = channel
            task.add_done_callback(lambda task: self._channels.pop(task, None))

    async def _converse(self, channel: Channel) -> None:
        end = FetchError("unreachable", "the connection is over")
        try:
            async with asyncio.timeout(self._handshake_s):
                session = await admit(channel, self._me)
            while True:
                async with asyncio.timeout(self._idle_s):
                    kind, body = await receive_frame(channel, session.codec)
                await self._answer(channel, session, kind, body)
        except FetchError as error:
            end = error
        except RecordError as error:
            end = FetchError("corrupt", error.message)
        except TimeoutError:
            end = FetchError("timeout", "nothing came in time")
        finally:
            self.causes[end.cause] += 1
            channel.close(end)

    async def _answer(
        self, channel: Channel, session: Session, kind: wire.Kind, body: bytes
    ) -> None:
        if kind is wire.Kind.GET:
            await self._chunk(channel, session, wire.decode(body, wire.Get))
        elif kind is wire.Kind.WARM:
            await self._fill(channel, session, wire.decode(body, wire.Warm))
        elif kind is wire.Kind.CALL:
            await self._call(channel, session, wire.decode(body, wire.Call))
        else:
            raise RecordError(f"a {kind.name} frame is no request")

    # -- answers ---------------------------------------------------------------

    async def _chunk(self, channel: Channel, session: Session, get: wire.Get) -> None:
        await self._source.reach(get.key, get.tenant)
        served = self._source.open(get.key, get.tenant, session.peer)
        if isinstance(served, str):
            miss = wire.encode(wire.Miss(get.id, served))
            await self._send(channel, [session.codec.pack(wire.Kind.MISS, miss)], self._send_s)
            self._source.closed(get.key, session.peer, 0, served)
            return
        before = channel.sent_bytes
        cause = "cancelled"
        try:
            frame = session.codec.pack(wire.Kind.CHUNK, wire.chunk_body(get.id, served.header))
            lease_s = served.lease_ns / NS_PER_S
            await self._send(channel, [frame, *served.pieces], lease_s, "lease")
            cause = ""
        except FetchError as error:
            cause = error.cause
            raise
        finally:
            served.release()
            self._source.closed(get.key, session.peer, channel.sent_bytes - before, cause)

    async def _fill(self, channel: Channel, session: Session, warm: wire.Warm) -> None:
        if not 0 <= warm.n_bytes <= _MAX_FILL_BYTES:
            raise RecordError(f"{warm.n_bytes} bytes of filler asked for")
        channel.write([session.codec.pack(wire.Kind.FILL, wire.encode(warm))])
        for piece in _fill_pieces(warm.n_bytes):
            await self._send(channel, [piece], self._send_s)

    async def _call(self, channel: Channel, session: Session, call: wire.Call) -> None:
        handler = self._handlers.get(call.method)
        if handler is None:
            reply = wire.Reply(call.id, f"no such method at {self._me.site}", b"")
        else:
            caller = Caller(session.peer, session.incarnation)
            try:
                reply = wire.Reply(call.id, "", await handler(caller, call.body))
            except GeokvError as error:
                reply = wire.Reply(call.id, error.message, b"")
        frame = session.codec.pack(wire.Kind.REPLY, wire.encode(reply))
        await self._send(channel, [frame], self._send_s)

    @staticmethod
    async def _send(
        channel: Channel, pieces: list[memoryview | bytes], limit_s: float, cause: str = "timeout"
    ) -> None:
        channel.write(pieces)
        late = FetchError(cause, f"the answer was not sent within {limit_s:g} s")
        timer = asyncio.get_running_loop().call_later(limit_s, channel.close, late)
        try:
            await channel.drain()
        finally:
            timer.cancel()


def _fill_pieces(n_bytes: int) -> Iterator[memoryview]:
    whole = filler(min(n_bytes, _FILL_PIECE_BYTES))
    while n_bytes:
        piece = whole[: min(n_bytes, len(whole))]
        n_bytes -= len(piece)
        yield piece
