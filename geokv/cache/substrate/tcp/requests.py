"""What else can be asked of a peer than a chunk: one class per exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Segment
from geokv.cache.substrate.tcp.request import Request, missed
from geokv.cache.substrate.tcp.wire import Kind
from geokv.cache.substrate.transport import PUSH, Served
from geokv.errors import RecordError


class WarmRequest(Request):
    """Filler, to open a congestion window."""

    def __init__(self, n_bytes: int, deadline_ns: int, result: asyncio.Future[Any]) -> None:
        super().__init__(deadline_ns, result)
        self._n_bytes = n_bytes

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        return Kind.WARM, wire.encode(wire.Warm(self.id, self._n_bytes)), ()

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        if kind is not Kind.FILL:
            return super().take(kind, message)
        return [Segment(message.n_bytes)] if message.n_bytes else None


class CallRequest(Request):
    """A handler's answer."""

    def __init__(
        self, method: str, body: bytes, deadline_ns: int, result: asyncio.Future[Any]
    ) -> None:
        super().__init__(deadline_ns, result)
        self._method = method
        self._body = body

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        return Kind.CALL, wire.encode(wire.Call(self.id, self._method, self._body)), ()

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        if kind is not Kind.REPLY:
            return super().take(kind, message)
        self.outcome = message
        return None


class PutRequest(Request):
    """A chunk of ours for a peer that wants it: offered, then sent, then confirmed.

    Args:
        send: sends the payload on the request's connection.
        tenant: whose chunk it is, for rate caps.
    """

    priority = PUSH
    upload = True

    def __init__(
        self,
        served: Served,
        peer: str,
        deadline_ns: int,
        result: asyncio.Future[Any],
        send: Callable[[PutRequest], None],
        tenant: str = "",
    ) -> None:
        super().__init__(deadline_ns, result)
        self.served = served
        self.tenant = tenant
        self._peer = peer
        self._send = send
        self._accepted = False

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        return Kind.OFFER, wire.encode(wire.Offer(self.id, self.served.header)), ()

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        if kind is Kind.MISS:
            self.outcome = missed(message, f"{self._peer} did not keep the chunk")
            return None
        if kind is Kind.ACCEPT and not self._accepted:
            self._accepted = True
            self._send(self)
            return ()
        if kind is Kind.DONE and self._accepted:
            return None
        return super().take(kind, message)


class _AccessRequest(Request):
    """Between places of the peer's registered memory and as many places of ours."""

    priority = PUSH

    def __init__(
        self,
        places: Sequence[wire.Place],
        ours: Sequence[memoryview],
        deadline_ns: int,
        result: asyncio.Future[Any],
    ) -> None:
        super().__init__(deadline_ns, result)
        self._places = tuple(places)
        self._ours = ours

    def _access(self) -> bytes:
        return wire.encode(wire.Access(self.id, self._places))


class ReadRequest(_AccessRequest):
    """Places of the peer's registered memory into places of ours."""

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        return Kind.READ, self._access(), ()

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        if kind is Kind.MISS:
            self.outcome = missed(message, "the peer refused the read")
            return None
        if kind is not Kind.DATA:
            return super().take(kind, message)
        if message.n_bytes != sum(map(len, self._ours)):
            raise RecordError(f"{message.n_bytes} bytes in answer to a read of other length")
        return [Segment(len(view), view) for view in self._ours]


class WriteRequest(_AccessRequest):
    """Places of ours into places of the peer's registered memory."""

    upload = True

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        return Kind.WRITE, self._access(), self._ours

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        if kind is Kind.MISS:
            self.outcome = missed(message, "the peer refused the write")
            return None
        return None if kind is Kind.DONE else super().take(kind, message)


_ANSWERS = frozenset(
    (Kind.MISS, Kind.FILL, Kind.REPLY, Kind.CODED, Kind.ACCEPT, Kind.DONE, Kind.DATA)
)


def read_answer(kind: Kind, body: bytes) -> tuple[int, Any]:
    """Which request a frame answers, and what it says.

    Raises:
        RecordError: it is no answer.
    """
    if kind is Kind.CHUNK:
        return wire.split_chunk(body)
    if kind not in _ANSWERS:
        raise RecordError(f"a {kind.name} frame is no answer")
    message: Any = wire.decode(body, wire.MESSAGES[kind])
    return message.id, message
