"""The asking end of one connection: requests out, answers in the same order.

Requests are pipelined. An answer that is late or not whole closes the connection,
because what follows cannot be told apart from the rest of the record; an answer that
is whole but wrong (checksum, header) costs only its own transfer.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import xxhash

from geokv.cache import record
from geokv.cache.filler import group_filler
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel, Segment
from geokv.cache.substrate.tcp.handshake import Identity, Session, greet, receive_frame
from geokv.cache.substrate.tcp.sockets import SocketOptions, tcp_info
from geokv.cache.substrate.transport import Transfer
from geokv.clock import now_ns
from geokv.errors import FetchError, RecordError
from geokv.units import NS_PER_S


@dataclass(eq=False)
class _Pending:
    """A request whose answer must come next, or after those before it."""

    id: int
    deadline_ns: int
    result: asyncio.Future[Any]
    transfer: Transfer | None = None
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class Stream:
    """One authenticated connection to a peer.

    Args:
        on_change: called when an answer is complete or the stream has ended.

    Attributes:
        layout: how the peer's chunks lie.
    """

    def __init__(
        self,
        channel: Channel,
        session: Session,
        stripe: int,
        on_change: Callable[[Stream], None],
    ) -> None:
        self.peer = session.peer
        self.incarnation = session.incarnation
        self.stripe = stripe
        self.error: FetchError | None = None
        self.silent = True
        self._channel = channel
        self._codec = session.codec
        self.layout = session.layout
        self._on_change = on_change
        self._pending: deque[_Pending] = deque()
        self._next_id = 1
        self._loop = asyncio.get_running_loop()
        self._reader = self._loop.create_task(self._read_answers())

    @property
    def outstanding(self) -> int:
        """Requests without a complete answer."""
        return len(self._pending)

    def tcp_info(self) -> dict[str, Any]:
        """Socket state as the kernel reports it."""
        return tcp_info(self._channel.sock)

    # -- asking ----------------------------------------------------------------

    def get(self, transfer: Transfer) -> None:
        """Send the request of ``transfer``; its future tells the rest."""
        transfer.state = "active"
        transfer.stripe = self.stripe
        transfer.requested_ns = now_ns()
        if transfer.layout not in (None, self.layout):
            transfer.state = "error"
            if not transfer.done.done():
                transfer.done.set_exception(
                    FetchError("mismatch", f"the chunks of {self.peer} lie otherwise now")
                )
            return
        pending = self._post(transfer.deadline_ns, transfer.done, transfer)
        message = wire.Get(pending.id, transfer.ref.key, transfer.ref.tenant)
        self._write(wire.Kind.GET, message)

    async def warm(self, n_bytes: int, deadline_ns: int) -> None:
        """Pull ``n_bytes`` of filler.

        Raises:
            FetchError: ``timeout`` or ``unreachable``.
        """
        pending = self._post(deadline_ns, self._loop.create_future())
        self._write(wire.Kind.WARM, wire.Warm(pending.id, n_bytes))
        await pending.result

    async def call(self, method: str, body: bytes, deadline_ns: int) -> bytes:
        """Run a handler at the peer.

        Raises:
            FetchError: ``timeout``, ``unreachable``, or ``refused`` with its message.
        """
        pending = self._post(deadline_ns, self._loop.create_future())
        self._write(wire.Kind.CALL, wire.Call(pending.id, method, body))
        reply: wire.Reply = await pending.result
        if reply.error:
            raise FetchError("refused", f"{self.peer} refused {method}: {reply.error}")
        return reply.body

    def _post(
        self, deadline_ns: int, result: asyncio.Future[Any], transfer: Transfer | None = None
    ) -> _Pending:
        pending = _Pending(self._next_id, deadline_ns, result, transfer)
        self._next_id += 1
        pending.timer = self._loop.call_at(deadline_ns / NS_PER_S, self._late, pending)
        if transfer is not None:
            # Its memory is the caller's again, so no byte more may be written to it.
            result.add_done_callback(self._if_cancelled)
        self._pending.append(pending)
        return pending

    def _write(self, kind: wire.Kind, message: Any) -> None:
        try:
            self._channel.write([self._codec.pack(kind, wire.encode(message))])
        except (FetchError, RecordError) as error:
            cause = error.cause if isinstance(error, FetchError) else "mismatch"
            self.fail(FetchError(cause, error.message))

    def _late(self, pending: _Pending) -> None:
        waited = "no byte of the answer came" if self.silent else "the answer is not whole"
        self.fail(
            FetchError("timeout", f"{self.peer} did not answer by the deadline ({waited})"), pending
        )

    def _if_cancelled(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.fail(FetchError("cancelled", "the request was given up in mid-answer"))

    # -- answers ---------------------------------------------------------------

    async def _read_answers(self) -> None:
        try:
            while True:
                kind, body = await receive_frame(self._channel, self._codec)
                if not self._pending:
                    raise RecordError(f"a {kind.name} frame that nobody asked for")
                pending = self._pending[0]
                self.silent = False
                outcome = await self._answer(pending, kind, body)
                self._pending.popleft()
                self.silent = True
                _settle(pending, outcome)
                self._on_change(self)
        except RecordError as error:
            self.fail(FetchError("corrupt", f"from {self.peer}: {error.message}"))
        except FetchError as error:
            self.fail(error)

    async def _answer(self, pending: _Pending, kind: wire.Kind, body: bytes) -> Any:
        if kind is wire.Kind.CHUNK:
            id_, packed = wire.split_chunk(body)
            self._check_id(pending, id_)
            if pending.transfer is None:
                raise RecordError("a chunk in answer to something else")
            return await self._chunk(pending.transfer, packed)
        if kind is wire.Kind.MISS:
            miss = wire.decode(body, wire.Miss)
            self._check_id(pending, miss.id)
            return FetchError(miss.cause, f"{self.peer} has no such chunk for us ({miss.cause})")
        if kind is wire.Kind.FILL:
            fill = wire.decode(body, wire.Warm)
            self._check_id(pending, fill.id)
            await self._channel.receive([Segment(fill.n_bytes)])
            return None
        if kind is wire.Kind.REPLY:
            reply = wire.decode(body, wire.Reply)
            self._check_id(pending, reply.id)
            return reply
        raise RecordError(f"a {kind.name} frame is no answer")

    @staticmethod
    def _check_id(pending: _Pending, id_: int) -> None:
        if id_ != pending.id:
            raise RecordError(f"answer to request {id_} where {pending.id} must come")

    async def _chunk(self, transfer: Transfer, packed: memoryview) -> Any:
        """The verified header, or the error that this transfer ends with."""
        transfer.first_byte_ns = now_ns()
        header = record.parse(packed)
        cause = record.verify(header, transfer.ref, self.layout, self.incarnation)
        if cause is not None:
            # Its length cannot be trusted either, so the connection ends with it.
            raise FetchError(cause, f"{self.peer} sent a chunk that was not asked for ({cause})")
        hashers = [xxhash.xxh3_128() for _ in self.layout.group_bytes]
        segments = []
        for hasher, piece, fill in zip(
            hashers, self.layout.group_slices, group_filler(self.layout), strict=True
        ):
            real = transfer.into[piece]
            segments.append(Segment(len(real), real, hasher.update))
            segments.append(Segment(len(fill), None, hasher.update))
        try:
            await self._channel.receive(segments)
        except FetchError as error:
            if error.cause == "unreachable" and now_ns() - transfer.first_byte_ns > header.lease_ns:
                raise FetchError("lease", "the lease ended before the chunk was sent") from None
            raise
        transfer.last_byte_ns = now_ns()
        if transfer.last_byte_ns - transfer.first_byte_ns > header.lease_ns:
            return FetchError("lease", "the chunk came after its lease had ended")
        sums = tuple(hasher.digest() for hasher in hashers)
        for group, (got, promised) in enumerate(zip(sums, header.checksums, strict=True)):
            if got != promised:
                return FetchError("corrupt", f"from {self.peer}: checksum of layer group {group}")
        transfer.verified_ns = now_ns()
        return header

    # -- ending ----------------------------------------------------------------

    def fail(self, error: FetchError, first: _Pending | None = None) -> None:
        """Close the connection. Whoever is next in turn (or ``first``) gets ``error``;
        the others, who only shared the connection, get ``unreachable``."""
        ended_before = self.error is not None
        if not ended_before:
            self.error = error
            self._channel.close(error)
        culprit = first or (self._pending[0] if self._pending else None)
        shared = FetchError(
            "unreachable", f"the connection to {self.peer} was closed: {error.message}"
        )
        for pending in self._pending:
            late = error.cause == "timeout" and pending.deadline_ns <= now_ns()
            _settle(pending, error if pending is culprit or late else shared)
        self._pending.clear()
        if not ended_before:
            self._on_change(self)

    async def close(self) -> None:
        """Close and wait for the reader to end."""
        self.fail(FetchError("unreachable", "closed by this site"))
        await asyncio.gather(self._reader, return_exceptions=True)


def _settle(pending: _Pending, outcome: Any) -> None:
    if pending.timer is not None:
        pending.timer.cancel()
    if pending.transfer is not None:
        pending.transfer.state = "error" if isinstance(outcome, Exception) else "done"
    if pending.result.done():
        return
    if isinstance(outcome, Exception):
        pending.result.set_exception(outcome)
        # A transfer that nobody waits for any more is no unhandled error.
        pending.result.exception()
    else:
        pending.result.set_result(outcome)


async def open_stream(
    address: tuple[str, int],
    expected: str,
    me: Identity,
    options: SocketOptions,
    stripe: int,
    deadline_ns: int,
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
        return Stream(channel, session, stripe, on_change)
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
