"""What can be asked of a peer: one class per exchange, seen from the asking end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import xxhash

from geokv.cache import record
from geokv.cache.codec_time import CodecTime
from geokv.cache.filler import group_filler
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Segment
from geokv.cache.substrate.tcp.coded import CodedPayload
from geokv.cache.substrate.tcp.wire import Kind
from geokv.cache.substrate.transport import PUSH, URGENT, Served, Transfer
from geokv.clock import now_ns
from geokv.errors import FetchError, RecordError

# Groups without filler that are together no longer than this are received in one go
# and looked at afterwards, while they are still in the processor's cache.
_TOGETHER_BYTES = 256 * 1024


class Request:
    """One exchange.

    Attributes:
        id: set when it is sent; unique on its connection.
        result: future of whoever asked.
        outcome: what ``result`` will be, once the answer is whole; an exception fails it.
        upload: it sends payload.
        rest: what is left to do when the answer is whole, and takes time: ``rested`` is
            told then. The connection has no part in it.
    """

    rest: asyncio.Future[Any] | None = None
    priority = URGENT
    upload = False

    def __init__(self, deadline_ns: int, result: asyncio.Future[Any]) -> None:
        self.id = 0
        self.deadline_ns = deadline_ns
        self.result = result
        self.outcome: Any = None

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        """The frame to send, and the raw payload that follows it."""
        raise NotImplementedError

    def sent(self) -> None:
        """The kernel has the request: what can be done while the answer is on its way."""

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        """Look at a frame that answers this.

        Returns:
            Where the payload behind it goes; ``None`` if the answer is whole now.

        Raises:
            RecordError, FetchError: the connection cannot go on after this.
        """
        raise RecordError(f"a {kind.name} frame is no answer to this")

    def whole(self) -> None:
        """The payload is in its place."""

    def rested(self, rest: asyncio.Future[Any]) -> None:
        """``rest`` is over, and was not cancelled."""


def _missed(message: wire.Miss, what: str) -> FetchError:
    cause = wire.known_cause(message.cause)
    return FetchError(cause, f"{what} ({cause})")


class GetRequest(Request):
    """A chunk by its key, or one layer group of it.

    Args:
        codecs: charge for decoding; None charges nothing.
    """

    def __init__(
        self,
        transfer: Transfer,
        layout: ChunkLayout,
        peer: str,
        incarnation: int,
        codec: str,
        codecs: CodecTime | None = None,
    ) -> None:
        super().__init__(transfer.deadline_ns, transfer.done)
        self.priority = transfer.priority
        self.transfer = transfer
        self._layout = layout
        self._peer = peer
        self._incarnation = incarnation
        self._codec = codec
        self._codecs = codecs
        self._header: ChunkHeader | None = None
        self._coded: CodedPayload | None = None
        self._hashers: list[Any] = []

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        one = self.transfer
        get = wire.Get(
            self.id, one.ref.key, one.ref.tenant, one.priority, one.group, one.exact, self._codec
        )
        return Kind.GET, wire.encode(get), ()

    def sent(self) -> None:
        _ = self.transfer.ref.packed_tokens  # needed when the answer comes

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        if kind is Kind.MISS:
            self.outcome = _missed(message, f"{self._peer} has no such chunk for us")
            return None
        if kind is Kind.CHUNK:
            self._header = self._checked(message)
            return self._raw_places()
        if kind is Kind.CODED and message.codec == self._codec != "none":
            self._header = self._checked(message.header)
            self._coded = CodedPayload(
                message, self._layout, self._groups, self.transfer.into, self.transfer.exact
            )
            self.transfer.wire_bytes = self._coded.wire_bytes
            return self._coded.places
        return super().take(kind, message)

    @property
    def _groups(self) -> range:
        return self._layout.chosen(self.transfer.group)

    def _checked(self, packed: bytes | memoryview) -> ChunkHeader:
        self.transfer.first_byte_ns = now_ns()
        one = self.transfer
        header = record.parse(packed, one.ref)
        cause = record.verify(header, one.ref, self._layout, self._incarnation, one.exact)
        if cause is not None:
            # Its length cannot be trusted either, so the connection ends with it.
            raise FetchError(cause, f"{self._peer} sent a chunk that was not asked for ({cause})")
        return header

    def _raw_places(self) -> list[Segment]:
        layout, into = self._layout, self.transfer.into
        group = self.transfer.group
        wire_bytes = layout.wire_bytes if group < 0 else sum(layout.group_bytes[group])
        self.transfer.wire_bytes = wire_bytes
        if wire_bytes == len(into) <= _TOGETHER_BYTES:
            return [Segment(wire_bytes, into)]
        places: list[Segment] = []
        fillers = group_filler(layout)
        start = layout.group_slices[self._groups[0]].start
        for group in self._groups:
            hasher = xxhash.xxh3_128()
            self._hashers.append(hasher)
            piece, fill = layout.group_slices[group], len(fillers[group])
            real = into[piece.start - start : piece.stop - start]
            places.append(Segment(len(real), real, hasher.update))
            places.append(Segment(fill, None, hasher.update))
        return places

    def whole(self) -> None:
        one, header = self.transfer, self._header
        if header is None:
            raise RecordError("a payload without a header")
        one.last_byte_ns = now_ns()
        if one.last_byte_ns - one.first_byte_ns > header.lease_ns:
            self.outcome = FetchError("lease", "the chunk came after its lease had ended")
            return
        if self._coded is None:
            self.outcome = self._compared(header)
        elif self._codecs is None:
            self.outcome = self._decoded(self._coded.decode(header))
        else:
            work = partial(self._coded.decode, header)
            n_bytes = self._coded.plain_bytes
            self.rest = self._codecs.decode(self._codec, n_bytes, one.priority, work)
            return
        one.verified_ns = now_ns()

    def rested(self, rest: asyncio.Future[Any]) -> None:
        error = rest.exception()
        self.outcome = self._decoded(rest.result()) if error is None else error
        self.transfer.verified_ns = now_ns()

    def _decoded(self, found: ChunkHeader | str) -> ChunkHeader | FetchError:
        if isinstance(found, str):
            return FetchError("corrupt", f"from {self._peer}: {found}")
        return found

    def _compared(self, header: ChunkHeader) -> ChunkHeader | FetchError:
        if self._hashers:
            sums = [hasher.digest() for hasher in self._hashers]
        else:
            slices = [self._layout.group_slices[group] for group in self._groups]
            base, into = slices[0].start, self.transfer.into
            sums = [
                xxhash.xxh3_128_digest(into[piece.start - base : piece.stop - base])
                for piece in slices
            ]
        for group, got in zip(self._groups, sums, strict=True):
            if got != header.checksums[group]:
                return FetchError("corrupt", f"from {self._peer}: checksum of layer group {group}")
        return header

    def lease_ended(self) -> bool:
        """Could the lease of the answer be why the connection ended?"""
        header, first = self._header, self.transfer.first_byte_ns
        return header is not None and now_ns() - first > header.lease_ns


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
            self.outcome = _missed(message, f"{self._peer} did not keep the chunk")
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
            self.outcome = _missed(message, "the peer refused the read")
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
            self.outcome = _missed(message, "the peer refused the write")
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
