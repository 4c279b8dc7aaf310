"""The asking end of one connection.

Requests are pipelined and answers come in the order the peer chooses (urgent ones
first). An answer that is late or not whole closes the connection, because what follows
cannot be told apart from the rest of the record; an answer that is whole but wrong
(checksum) costs only its own transfer.

Longer than most: sending, hearing and giving up share the order of one connection, in which a
late answer must still be told from the next.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from geokv.cache.codec_time import CodecTime
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel, Segment
from geokv.cache.substrate.tcp.frames import Frames
from geokv.cache.substrate.tcp.get_request import GetRequest
from geokv.cache.substrate.tcp.handshake import Identity, Session, greet
from geokv.cache.substrate.tcp.request import Request
from geokv.cache.substrate.tcp.requests import CallRequest, PutRequest, WarmRequest, read_answer
from geokv.cache.substrate.tcp.sockets import SocketOptions, tcp_info
from geokv.cache.substrate.tcp.throttle import Throttle
from geokv.cache.substrate.transport import Transfer
from geokv.clock import now_ns
from geokv.errors import FetchError, RecordError
from geokv.units import NS_PER_S


class Stream:
    """One authenticated connection to a peer.

    Args:
        throttle: caps what this site sends.
        on_change: called when an answer is complete or the stream has ended.

    Attributes:
        layout: how the peer's chunks lie.
        silent: no frame has come since the last answer was whole.
        frames: that have come so far.
    """

    def __init__(
        self,
        channel: Channel,
        session: Session,
        stripe: int,
        throttle: Throttle,
        on_change: Callable[[Stream], None],
    ) -> None:
        self.peer = session.peer
        self.incarnation = session.incarnation
        self.layout = session.layout
        self.stripe = stripe
        self.error: FetchError | None = None
        self.silent = True
        self.frames = 0
        self._channel = channel
        self._codec = session.codec
        self._throttle = throttle
        self._on_change = on_change
        self._pending: dict[int, Request] = {}
        self._current: Request | None = None
        self._sending: asyncio.Task[None] | None = None
        self._behind: list[tuple[wire.Kind, bytes, Sequence[memoryview]]] = []
        self._next_id = 1
        channel.on_end = self._ended
        self._frames = Frames(
            channel, session.codec, self._on_frame, self._on_payload, lambda: bool(self._pending)
        )
        self._frames.start()

    @property
    def outstanding(self) -> int:
        """Requests without a complete answer."""
        return len(self._pending)

    def busy(self, priority: int) -> int:
        """Requests without a complete answer that are no less urgent than ``priority``."""
        return sum(request.priority <= priority for request in self._pending.values())

    @property
    def uploading(self) -> bool:
        """Is payload of ours under way, behind which requests would have to wait?"""
        return any(request.upload for request in self._pending.values())

    def tcp_info(self) -> dict[str, Any]:
        """Socket state as the kernel reports it."""
        return tcp_info(self._channel.sock)

    # -- asking ----------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Send it; its future tells the rest. The caller watches its deadline and calls
        ``late``."""
        if self.error is not None:
            why = f"the connection to {self.peer} was closed: {self.error.message}"
            _settle(request, FetchError("unreachable", why))
            return
        request.id = self._next_id
        self._next_id += 1
        self._pending[request.id] = request
        kind, body, pieces = request.ask()
        self._write(kind, body, pieces)
        request.sent()

    def get(
        self, transfer: Transfer, codec: str = "none", codecs: CodecTime | None = None
    ) -> Request | None:
        """Ask for a chunk; ``None`` if that ended at once."""
        transfer.state = "active"
        transfer.stripe = self.stripe
        transfer.requested_ns = now_ns()
        if transfer.layout is not self.layout and transfer.layout != self.layout:
            # The peer came back with another layout than the one this was made for.
            error = FetchError("mismatch", f"the chunks of {self.peer} lie otherwise now")
            transfer.state = "error"
            if not transfer.done.done():
                transfer.done.set_exception(error)
            return None
        request = GetRequest(transfer, self.layout, self.peer, self.incarnation, codec, codecs)
        self.send(request)
        return request

    async def warm(self, n_bytes: int, deadline_ns: int) -> None:
        """Pull ``n_bytes`` of filler.

        Raises:
            FetchError: ``timeout`` or ``unreachable``.
        """
        await self._ask(WarmRequest(n_bytes, deadline_ns, self._future()))

    async def call(self, method: str, body: bytes, deadline_ns: int) -> bytes:
        """Run a handler at the peer.

        Raises:
            FetchError: ``timeout``, ``unreachable``, or ``refused`` with its message.
        """
        reply: wire.Reply = await self._ask(CallRequest(method, body, deadline_ns, self._future()))
        if reply.error:
            raise FetchError("refused", f"{self.peer} refused {method}: {reply.error}")
        return reply.body

    def notify(self, notice: bytes) -> None:
        """Tell the peer something that it does not answer."""
        self._write(wire.Kind.NOTIFY, wire.encode(wire.Notify(notice)))

    def deliver(self, put: PutRequest) -> None:
        """Send the payload of an accepted offer, giving way to what requests wait for."""
        n_bytes = sum(map(len, put.served.pieces))
        self._write(wire.Kind.PAYLOAD, wire.encode(wire.Ticket(put.id, n_bytes)))
        paced = self._paced(put.served.pieces, put.tenant)
        self._sending = asyncio.get_running_loop().create_task(paced)

    async def _ask(self, request: Request) -> Any:
        loop = asyncio.get_running_loop()
        timer = loop.call_at(request.deadline_ns / NS_PER_S, self.late, request)
        try:
            self.send(request)
            return await request.result
        finally:
            timer.cancel()

    @staticmethod
    def _future() -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def _write(self, kind: wire.Kind, body: bytes, pieces: Sequence[memoryview] = ()) -> None:
        if self._sending is not None:
            # In the middle of a payload no frame may come.
            self._behind.append((kind, body, pieces))
            return
        try:
            self._channel.write([self._codec.pack(kind, body), *pieces])
        except (FetchError, RecordError) as error:
            cause = error.cause if isinstance(error, FetchError) else "mismatch"
            self.fail(FetchError(cause, error.message))

    def late(self, request: Request) -> None:
        """The deadline of ``request`` has passed."""
        if request.rest is not None:
            request.rest.cancel()
            _settle(request, FetchError("timeout", "it was not decoded by the deadline"))
            return
        waited = "no byte of the answer came" if self.silent else "the answer is not whole"
        self.fail(
            FetchError("timeout", f"{self.peer} did not answer by the deadline ({waited})"), request
        )

    # -- answers ---------------------------------------------------------------

    def _on_frame(self, kind: wire.Kind, body: bytes) -> Sequence[Segment]:
        id_, message = read_answer(kind, body)
        self.frames += 1
        request = self._pending.get(id_)
        if request is None:
            raise RecordError(f"a {kind.name} frame that nobody asked for")
        self.silent = False
        self._current = request
        segments = request.take(kind, message)
        if segments is None:
            self._complete(request)
        elif not segments:
            self._current = None
        return segments or ()

    def _on_payload(self) -> None:
        request = self._current
        if request is not None:
            request.whole()
            self._complete(request)

    def _complete(self, request: Request) -> None:
        self._current = None
        self.silent = True
        del self._pending[request.id]
        if request.rest is None:
            _settle(request, request.outcome)
        else:
            request.rest.add_done_callback(partial(_rested, request))
        self._on_change(self)

    # -- ending ----------------------------------------------------------------

    def stop(self, request: Request) -> None:
        """The caller gives ``request`` up: when this returns, no byte of it can land."""
        if self._pending.get(request.id) is request:
            self.fail(FetchError("cancelled", "the request was given up in mid-answer"), request)
        elif request.rest is not None:
            request.rest.cancel()

    def fail(self, error: FetchError, first: Request | None = None) -> None:
        """Close the connection. Whose answer was coming (or ``first``) gets ``error``; the
        others, who only shared the connection, get ``unreachable``."""
        if self.error is not None:
            return
        self.error = error
        if self._sending is not None:
            self._sending.cancel()
        self._channel.close(error)
        pending, self._pending = list(self._pending.values()), {}
        culprit = first or self._current or (pending[0] if pending else None)
        current = self._current
        in_answer = isinstance(current, GetRequest) and current.lease_ended()
        if in_answer and culprit is current and error.cause == "unreachable":
            error = FetchError("lease", "the lease ended before the chunk was sent")
        shared = FetchError(
            "unreachable", f"the connection to {self.peer} was closed: {error.message}"
        )
        for request in pending:
            late = error.cause == "timeout" and request.deadline_ns <= now_ns()
            _settle(request, error if request is culprit or late else shared)
        self._on_change(self)

    def _ended(self, error: FetchError) -> None:
        if error.cause == "corrupt":
            error = FetchError(error.cause, f"from {self.peer}: {error.message}")
        self.fail(error)

    async def close(self) -> None:
        """Close; what is still asked for ends as ``unreachable``."""
        self.fail(FetchError("unreachable", "closed by this site"))
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _paced(self, pieces: Sequence[memoryview], tenant: str) -> None:
        try:
            await self._throttle.give_way(self._channel, pieces, self.peer, tenant)
        except FetchError as error:
            self.fail(error)
            return
        self._sending = None
        behind, self._behind = self._behind, []
        for frame in behind:
            self._write(*frame)


def _rested(request: Request, rest: asyncio.Future[Any]) -> None:
    if rest.cancelled():
        _settle(request, FetchError("cancelled", "it was given up before it was decoded"))
        return
    request.rested(rest)
    _settle(request, request.outcome)


def _settle(request: Request, outcome: Any) -> None:
    if isinstance(request, GetRequest):
        request.transfer.state = "error" if isinstance(outcome, Exception) else "done"
    if request.result.done():
        return
    if isinstance(outcome, Exception):
        request.result.set_exception(outcome)
        # A transfer that nobody waits for any more is no unhandled error.
        request.result.exception()
    else:
        request.result.set_result(outcome)


async def open_stream(
    address: tuple[str, int],
    expected: str,
    me: Identity,
    options: SocketOptions,
    stripe: int,
    deadline_ns: int,
    throttle: Throttle,
    on_change: Callable[[Stream], None],
) -> Stream:
    """Connect and authenticate.

    Raises:
        FetchError: ``timeout``, ``unreachable``, ``unauthorised`` or ``mismatch``.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        options.apply(sock)
        async with asyncio.timeout_at(deadline_ns / NS_PER_S):
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
            channel, session = await _greet(sock, me, expected)
        return Stream(channel, session, stripe, throttle, on_change)
    except TimeoutError:
        sock.close()
        raise FetchError("timeout", f"{expected} at {host}:{port} did not answer in time") from None
    except OSError as error:
        sock.close()
        raise FetchError(
            "unreachable",
            f"{expected} at {host}:{port} cannot be reached ({error.strerror or error})",
            "is the site's process running and the link up?",
        ) from None
    except BaseException:
        sock.close()
        raise


async def _greet(sock: socket.socket, me: Identity, expected: str) -> tuple[Channel, Session]:
    channel = Channel(sock, asyncio.get_running_loop())
    try:
        return channel, await greet(channel, me, expected)
    except BaseException:
        channel.close(FetchError("unreachable", "the handshake did not succeed"))
        raise
