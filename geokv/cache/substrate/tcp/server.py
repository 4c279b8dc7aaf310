"""The answering end: lets sites in; a ``Conversation`` each then answers them."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping
from typing import Any

from geokv.cache.codec_time import CodecTime
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.conversation import Conversation
from geokv.cache.substrate.tcp.desk import Desk
from geokv.cache.substrate.tcp.handshake import Identity, admit
from geokv.cache.substrate.tcp.memory import Memory
from geokv.cache.substrate.tcp.sockets import SocketOptions, listen, tcp_info
from geokv.cache.substrate.tcp.throttle import Throttle
from geokv.cache.substrate.transport import ChunkSink, ChunkSource, Handler
from geokv.errors import FetchError, RecordError

_BACKLOG = 256


class KvServer:
    """Serves one site's chunks.

    Args:
        max_connections: further ones are closed at once and counted.
        handshake_s: how long a stranger may take to prove himself.
        idle_s: a connection without a request for so long is closed.
        send_s: how long an answer that is no chunk may take (chunks have leases).
        codecs: charge for coding; None charges nothing.
    """

    def __init__(
        self,
        me: Identity,
        source: ChunkSource,
        sink: ChunkSink | None,
        handlers: Mapping[str, Handler],
        memory: Memory,
        throttle: Throttle,
        options: SocketOptions,
        *,
        max_connections: int = 1024,
        handshake_s: float = 10.0,
        idle_s: float = 3600.0,
        send_s: float = 60.0,
        codecs: CodecTime | None = None,
    ) -> None:
        self.causes: Counter[str] = Counter()
        self._me = me
        self._desk = Desk(
            me.site, me.layout, source, sink, handlers, memory, throttle, idle_s, send_s, codecs
        )
        self._options = options
        self._max_connections = max_connections
        self._handshake_s = handshake_s
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._channels: dict[asyncio.Task[None], Channel] = {}
        self._peers: dict[asyncio.Task[None], str] = {}

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

    def drop(self, peer: str, cause: str) -> None:
        """``peer`` is known to be down: what is held for it is let go of now."""
        for task, name in list(self._peers.items()):
            if name == peer:
                self._channels[task].close(FetchError("unreachable", f"{peer} is down ({cause})"))

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
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._channels.pop(task, None)
        self._peers.pop(task, None)

    async def _converse(self, channel: Channel) -> None:
        end = FetchError("unreachable", "the connection is over")
        try:
            async with asyncio.timeout(self._handshake_s):
                session = await admit(channel, self._me)
            task = asyncio.current_task()
            assert task is not None
            self._peers[task] = session.peer
            conversation = Conversation(channel, session, self._desk)
            conversation.start()
            end = await conversation.over
        except FetchError as error:
            end = error
        except RecordError as error:
            end = FetchError("corrupt", error.message)
        except TimeoutError:
            end = FetchError("timeout", "nothing came in time")
        finally:
            self.causes[end.cause] += 1
            channel.close(end)
