"""One authenticated connection, seen from the answering end.

Requests are read as they come, up to a limit, and answered one after the other: the
most urgent first, in order within a priority. Behind the limit they wait in the socket,
where TCP's window limits them, so that a client can hold no memory here. A chunk is
pinned while it is sent and at most for its lease: then the connection is closed,
because half a record can be of no use to anybody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

import msgspec
import xxhash

from geokv.cache import record
from geokv.cache.codec import CODECS, Codec
from geokv.cache.codec_time import CodecTime
from geokv.cache.filler import filler, group_filler
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel, Segment
from geokv.cache.substrate.tcp.coded import Coded, code
from geokv.cache.substrate.tcp.encoding import Encoding, Encodings
from geokv.cache.substrate.tcp.frames import Frames
from geokv.cache.substrate.tcp.handshake import Session
from geokv.cache.substrate.tcp.memory import Memory
from geokv.cache.substrate.tcp.throttle import Throttle
from geokv.cache.substrate.tcp.wire import Kind
from geokv.cache.substrate.transport import (
    BACKGROUND,
    FETCH,
    PUSH,
    URGENT,
    Caller,
    ChunkSink,
    ChunkSource,
    Ended,
    Handler,
    Landing,
    Served,
)
from geokv.errors import FetchError, GeokvError, RecordError
from geokv.units import NS_PER_S

_MOST_WAITING = 64
_MOST_CALLS = 4
_MOST_OFFERS = 64
_FILL_PIECE_BYTES = 1024 * 1024
_FILL_BATCH = 64
_MAX_RAW_BYTES = 2**34


@dataclass
class Desk:
    """What all connections of a site answer from.

    Args:
        idle_s: a connection without a request for so long is closed.
        send_s: how long an answer that is no chunk, and the payload of an offer that
            was accepted, may take.
        codecs: charge for coding; None charges nothing.
    """

    site: str
    layout: ChunkLayout
    source: ChunkSource
    sink: ChunkSink | None
    handlers: Mapping[str, Handler]
    memory: Memory
    throttle: Throttle
    idle_s: float
    send_s: float
    codecs: CodecTime | None = None


@dataclass
class _Offered:
    header: ChunkHeader
    landing: Landing
    timer: asyncio.TimerHandle
    hashers: list[Any]


class Conversation:
    """Answers until the connection ends; ``over`` tells why it did."""

    def __init__(self, channel: Channel, session: Session, desk: Desk) -> None:
        self.over: asyncio.Future[FetchError] = asyncio.get_running_loop().create_future()
        self._channel = channel
        self._session = session
        self._codec = session.codec
        self._desk = desk
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._pumping = False
        self._more: Callable[[], None] | None = None
        self._finish: Callable[[str], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._calls: deque[wire.Call] = deque()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._calling = False
        self._offers: dict[int, _Offered] = {}
        self._reached: dict[int, bytes] = {}
        self._encodings: Encodings | None = None
        if desk.codecs is not None:
            self._encodings = Encodings(desk.codecs, desk.layout, self._coded, self._uncoded)
        self._landed: Callable[[], None] = lambda: None
        self._heard = self._heard_before = 0
        self._idle = self._loop.call_later(desk.idle_s, self._look)
        channel.on_end = self._ended
        self._frames = Frames(channel, session.codec, self._on_frame, self._on_payload)

    def start(self) -> None:
        """Begin to answer."""
        self._frames.start()

    # -- hearing ---------------------------------------------------------------

    def _on_frame(self, kind: Kind, body: bytes) -> Sequence[Segment]:
        self._heard += 1
        places = self._hear(kind, body)
        if self._full and not self._paused:
            self._paused = True
            self._frames.pause()
        return places

    def _hear(self, kind: Kind, body: bytes) -> Sequence[Segment]:
        if kind is Kind.GET:
            self._get(wire.decode(body, wire.Get))
        elif kind is Kind.CALL:
            self._calls.append(wire.decode(body, wire.Call))
            if not self._calling:
                self._calling = True
                self._spawn(self._answer_calls())
        elif kind is Kind.WARM:
            self._warm(wire.decode(body, wire.Warm))
        elif kind is Kind.OFFER:
            self._offer(wire.decode(body, wire.Offer))
        elif kind is Kind.PAYLOAD:
            return self._payload(wire.decode(body, wire.Ticket))
        elif kind is Kind.READ:
            self._read(wire.decode(body, wire.Access))
        elif kind is Kind.WRITE:
            return self._write(wire.decode(body, wire.Access))
        elif kind is Kind.NOTIFY:
            self._desk.memory.noticed(self._session.peer, wire.decode(body, wire.Notify).notice)
        else:
            raise RecordError(f"a {kind.name} frame is no request")
        return ()

    def _on_payload(self) -> None:
        self._landed()

    def _look(self) -> None:
        """Has anything been heard since the last look?"""
        busy = self._finish is not None or self._tasks or self._encodings
        if self._heard == self._heard_before and not busy:
            self._channel.close(FetchError("timeout", "nothing came in time"))
            return
        self._heard_before = self._heard
        self._idle = self._loop.call_later(self._desk.idle_s, self._look)

    # -- taking turns ----------------------------------------------------------

    def _queue(self, priority: int, answer: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._waiting, (priority, self._order, answer))
        self._pump()

    @property
    def _full(self) -> bool:
        """Is so much waiting that no more may be heard?"""
        much = max(len(self._waiting), len(self._tasks), len(self._encodings or ()))
        return much >= _MOST_WAITING or len(self._calls) >= _MOST_CALLS

    def _hear_on(self) -> None:
        if self._paused and not self._full and not self._channel.closed:
            self._paused = False
            self._frames.resume()

    def _pump(self) -> None:
        """Send what waits until something does not fit into the kernel at once."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._finish is None and not self._channel.closed:
                if self._more is not None:
                    answer, self._more = self._more, None
                elif self._waiting:
                    answer = heappop(self._waiting)[2]
                else:
                    break
                answer()
        except FetchError as error:
            self._channel.close(error)
        finally:
            self._pumping = False
        self._hear_on()

    def _send(
        self,
        pieces: Sequence[memoryview | bytes],
        limit_s: float,
        late: str = "timeout",
        finish: Callable[[str], None] | None = None,
    ) -> None:
        """Send ``pieces``; ``finish`` is called once, with "" or the cause of the end."""
        self._finish = finish or _nothing
        self._channel.write(pieces, self._sent)
        if self._finish is not None:
            self._watch(limit_s, late)

    def _watch(self, limit_s: float, late: str) -> None:
        error = FetchError(late, f"the answer was not sent within {limit_s:g} s")
        self._timer = self._loop.call_later(limit_s, self._channel.close, error)

    def _sent(self) -> None:
        finish, self._finish = self._finish, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if finish is not None:
            finish("")
        self._pump()

    def _say(self, kind: Kind, message: msgspec.Struct) -> None:
        """Queue a small answer."""
        self._queue(URGENT, partial(self._say_now, kind, message))

    def _say_now(self, kind: Kind, message: msgspec.Struct) -> None:
        self._send([self._codec.pack(kind, wire.encode(message))], self._desk.send_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            # A handler's own fault: the peer is not left waiting, and it is not hidden.
            self._channel.close(FetchError("failed", f"an answer failed ({error})"))
            raise error
        self._hear_on()

    # -- chunks ----------------------------------------------------------------

    def _get(self, get: wire.Get) -> None:
        priority = max(URGENT + 1, min(get.priority, BACKGROUND))
        answer = partial(self._queue, priority, partial(self._chunk, get))
        codec = _codec_of(get)
        if codec is not None and self._encodings is not None:
            answer = partial(self._encode, get, codec, priority, self._encodings)
        if self._desk.source.ready(get.key):
            answer()
        else:
            self._spawn(self._reach(get, answer))

    async def _reach(self, get: wire.Get, answer: Callable[[], None]) -> None:
        await self._desk.source.reach(get.key, get.tenant)
        self._reached[get.id] = get.key
        answer()

    def _opened(self, get: wire.Get, say: Callable[[Kind, wire.Miss], None]) -> Served | None:
        desk, peer = self._desk, self._session.peer
        self._reached.pop(get.id, None)
        served = desk.source.open(get.key, get.tenant, peer)
        if not isinstance(served, str):
            served = served.part(get.group, desk.layout.groups, get.exact)
        if isinstance(served, str):
            say(Kind.MISS, wire.Miss(get.id, served))
            desk.source.closed(get.key, peer, Ended(served))
            return None
        return served

    def _chunk(self, get: wire.Get) -> None:
        served = self._opened(get, self._say_now)
        if served is not None:
            self._answer(get, served, served.lease_ns, partial(self._code, get, served))

    def _encode(self, get: wire.Get, codec: Codec, priority: int, encodings: Encodings) -> None:
        served = self._opened(get, self._say)
        if served is not None:
            encodings.begin(get, served, codec, priority)

    def _coded(self, one: Encoding) -> None:
        self._queue(one.priority, partial(self._send_coded, one))

    def _send_coded(self, one: Encoding) -> None:
        left_ns = self._encodings.take(one) if self._encodings is not None else 0
        if left_ns:
            self._answer(one.get, one.served, left_ns, one.coded.result)

    def _uncoded(self, one: Encoding, cause: str) -> None:
        ended = Ended(cause, generation=one.served.generation)
        self._desk.source.closed(one.get.key, self._session.peer, ended)
        if not self._channel.closed:
            self._say(Kind.MISS, wire.Miss(one.get.id, cause))

    def _answer(
        self, get: wire.Get, served: Served, lease_ns: int, coded: Callable[[], Coded | None]
    ) -> None:
        desk, peer = self._desk, self._session.peer
        before = self._channel.sent_bytes
        total = 0
        way = desk.throttle.way if get.priority <= FETCH else None
        if way is not None:
            way.enter()

        def finish(cause: str) -> None:
            served.release()
            if way is not None:
                way.leave(self._channel.unacknowledged)
            sent = self._channel.sent_bytes - before
            desk.source.closed(get.key, peer, Ended(cause, sent, total, served.generation))

        try:
            frame, pieces = self._framed(get, served, coded())
            total = len(frame) + sum(map(len, pieces))
        except BaseException:
            finish("failed")
            raise
        served.revoke = lambda cause: self._channel.close(FetchError(cause, "it was taken back"))
        limit_s = lease_ns / NS_PER_S
        if not desk.throttle.caps(peer, get.tenant):
            self._send([frame, *pieces], limit_s, "lease", finish)
            return
        self._finish = finish
        self._watch(limit_s, "lease")
        self._channel.write([frame])
        self._spawn(self._paced(pieces, get.tenant))

    def _code(self, get: wire.Get, served: Served) -> Coded | None:
        codec = _codec_of(get)
        return code(served.pieces, self._desk.layout, codec) if codec is not None else None

    def _framed(
        self, get: wire.Get, served: Served, coded: Coded | None
    ) -> tuple[bytes, list[memoryview]]:
        if coded is not None:
            said = wire.Coded(get.id, get.codec, served.header, coded[0])
            return self._codec.pack(Kind.CODED, wire.encode(said)), coded[1]
        body = wire.chunk_body(get.id, served.header)
        return self._codec.pack(Kind.CHUNK, body), served.pieces

    async def _paced(self, pieces: Sequence[memoryview], tenant: str) -> None:
        try:
            await self._desk.throttle.send(self._channel, pieces, self._session.peer, tenant)
        except FetchError as error:
            self._channel.close(error)
        else:
            self._sent()

    # -- filler ----------------------------------------------------------------

    def _warm(self, warm: wire.Warm) -> None:
        if not 0 <= warm.n_bytes <= _MAX_RAW_BYTES:
            raise RecordError(f"{warm.n_bytes} bytes of filler asked for")

        def begin() -> None:
            self._more = partial(self._fill, warm.n_bytes)
            self._say_now(Kind.FILL, warm)

        self._queue(BACKGROUND, begin)

    def _fill(self, n_bytes: int) -> None:
        whole = filler(min(n_bytes, _FILL_PIECE_BYTES))
        pieces: list[memoryview | bytes] = []
        while n_bytes and len(pieces) < _FILL_BATCH:
            pieces.append(whole[: min(n_bytes, len(whole))])
            n_bytes -= len(pieces[-1])
        if n_bytes:
            self._more = partial(self._fill, n_bytes)
        if pieces:
            self._send(pieces, self._desk.send_s)

    # -- calls -----------------------------------------------------------------

    async def _answer_calls(self) -> None:
        """One after the other: a peer's later word must not overtake its earlier one."""
        try:
            while self._calls:
                call = self._calls.popleft()
                self._say(Kind.REPLY, await self._reply(call))
        finally:
            self._calling = False

    async def _reply(self, call: wire.Call) -> wire.Reply:
        handler = self._desk.handlers.get(call.method)
        if handler is None:
            return wire.Reply(call.id, f"no such method at {self._desk.site}", b"")
        caller = Caller(self._session.peer, self._session.incarnation)
        try:
            return wire.Reply(call.id, "", await handler(caller, call.body))
        except GeokvError as error:
            return wire.Reply(call.id, error.message, b"")

    # -- pushed chunks ---------------------------------------------------------

    def _offer(self, offer: wire.Offer) -> None:
        if offer.id in self._offers:
            raise RecordError(f"offer {offer.id} was made before")
        header = record.parse(offer.header)
        sink, session = self._desk.sink, self._session
        if sink is None:
            landing: Landing | str = "refused"
        elif len(self._offers) >= _MOST_OFFERS:
            landing = "full"
        else:
            landing = sink.reserve(header, session.peer, session.incarnation)
        if isinstance(landing, str):
            self._say(Kind.MISS, wire.Miss(offer.id, landing))
            return
        timer = self._loop.call_later(self._desk.send_s, self._offer_late, offer.id)
        self._offers[offer.id] = _Offered(header, landing, timer, [])
        self._say(Kind.ACCEPT, wire.Ticket(offer.id))

    def _offer_late(self, id_: int) -> None:
        offered = self._offers[id_]
        if offered.hashers:
            # Bytes are landing: only the end of the connection ends that.
            self._channel.close(FetchError("timeout", "a pushed chunk did not come in time"))
            return
        del self._offers[id_]
        offered.landing.abort("timeout")

    def _payload(self, ticket: wire.Ticket) -> Sequence[Segment]:
        offered = self._offers.get(ticket.id)
        if offered is None:
            raise RecordError(f"payload of offer {ticket.id}, which is not open")
        layout, into = self._desk.layout, offered.landing.into
        if ticket.n_bytes != layout.wire_bytes:
            raise RecordError(f"{ticket.n_bytes} bytes for a chunk of {layout.wire_bytes}")
        places = []
        for piece, fill in zip(layout.group_slices, group_filler(layout), strict=True):
            hasher = xxhash.xxh3_128()
            offered.hashers.append(hasher)
            real = into[piece]
            places.append(Segment(len(real), real, hasher.update))
            places.append(Segment(len(fill), None, hasher.update))
        self._landed = partial(self._keep, ticket.id)
        return places

    def _keep(self, id_: int) -> None:
        offered = self._offers.pop(id_)
        offered.timer.cancel()
        if tuple(hasher.digest() for hasher in offered.hashers) != offered.header.checksums:
            offered.landing.abort("corrupt")
            self._say(Kind.MISS, wire.Miss(id_, "corrupt"))
            return
        try:
            offered.landing.commit(offered.header)
        except FetchError as error:
            self._say(Kind.MISS, wire.Miss(id_, error.cause))
            return
        self._say(Kind.DONE, wire.Ticket(id_))

    # -- registered memory -----------------------------------------------------

    def _read(self, access: wire.Access) -> None:
        def begin() -> None:
            views = self._desk.memory.views(access.places)
            if isinstance(views, str):
                self._say_now(Kind.MISS, wire.Miss(access.id, views))
                return
            ticket = wire.Ticket(access.id, sum(map(len, views)))
            frame = self._codec.pack(Kind.DATA, wire.encode(ticket))
            self._send([frame, *views], self._desk.send_s)

        self._queue(PUSH, begin)

    def _write(self, access: wire.Access) -> Sequence[Segment]:
        total = sum(place.n_bytes for place in access.places)
        if total > _MAX_RAW_BYTES or any(place.n_bytes < 1 for place in access.places):
            raise RecordError(f"a write of {total} bytes")
        views = self._desk.memory.views(access.places)
        if isinstance(views, str):
            self._landed = partial(self._say, Kind.MISS, wire.Miss(access.id, views))
            return [Segment(total)]
        self._landed = partial(self._say, Kind.DONE, wire.Ticket(access.id))
        return [Segment(len(view), view) for view in views]

    # -- ending ----------------------------------------------------------------

    def _ended(self, error: FetchError) -> None:
        self._idle.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self._more = None
        for task in list(self._tasks):
            task.cancel()
        reached, self._reached = self._reached, {}
        for key in reached.values():
            self._desk.source.forgo(key)
        if self._encodings is not None:
            self._encodings.end(error.cause)
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(error.cause)
        offers, self._offers = self._offers, {}
        for offered in offers.values():
            offered.timer.cancel()
            offered.landing.abort(error.cause)
        if not self.over.done():
            self.over.set_result(error)


def _codec_of(get: wire.Get) -> Codec | None:
    """In which the answer may be coded, if it gets shorter."""
    codec = CODECS.get(get.codec)
    return None if codec is not None and codec.lossy and get.exact else codec


def _nothing(cause: str) -> None:
    return None
