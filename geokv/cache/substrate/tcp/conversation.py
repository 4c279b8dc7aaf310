"""One authenticated connection, seen from the answering end.

Requests are read as they come, up to a limit, and answered one after the other: the
most urgent first, in order within a priority. Behind the limit they wait in the socket,
where TCP's window limits them, so that a client can hold no memory here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from geokv.cache.filler import filler
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.answers import ChunkAnswers
from geokv.cache.substrate.tcp.channel import Channel, Segment
from geokv.cache.substrate.tcp.desk import Desk
from geokv.cache.substrate.tcp.frames import Frames
from geokv.cache.substrate.tcp.handshake import Session
from geokv.cache.substrate.tcp.offers import Offers
from geokv.cache.substrate.tcp.turns import Turns
from geokv.cache.substrate.tcp.wire import Kind
from geokv.cache.substrate.transport import BACKGROUND, PUSH, Caller
from geokv.errors import FetchError, GeokvError, RecordError

_MOST_WAITING = 64
_MOST_CALLS = 4
_FILL_PIECE_BYTES = 1024 * 1024
_FILL_BATCH = 64
_MAX_RAW_BYTES = 2**34


class Conversation:
    """Answers until the connection ends; ``over`` tells why it did."""

    def __init__(self, channel: Channel, session: Session, desk: Desk) -> None:
        self.over: asyncio.Future[FetchError] = asyncio.get_running_loop().create_future()
        self._channel = channel
        self._session = session
        self._codec = session.codec
        self._desk = desk
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(channel, session.codec, desk.send_s)
        self._turns.on_free = self._hear_on
        self._answers = ChunkAnswers(
            desk, session.peer, channel, session.codec, self._turns, self._spawn
        )
        self._offers = Offers(desk, session, channel, self._turns.say)
        self._paused = False
        self._calls: deque[wire.Call] = deque()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._calling = False
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
            self._answers.get(wire.decode(body, wire.Get))
        elif kind is Kind.CALL:
            self._calls.append(wire.decode(body, wire.Call))
            if not self._calling:
                self._calling = True
                self._spawn(self._answer_calls())
        elif kind is Kind.WARM:
            self._warm(wire.decode(body, wire.Warm))
        elif kind is Kind.OFFER:
            self._offers.offer(wire.decode(body, wire.Offer))
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
        busy = self._turns.sending or self._tasks or self._answers.coding
        if self._heard == self._heard_before and not busy:
            self._channel.close(FetchError("timeout", "nothing came in time"))
            return
        self._heard_before = self._heard
        self._idle = self._loop.call_later(self._desk.idle_s, self._look)

    # -- how much at once ------------------------------------------------------

    @property
    def _full(self) -> bool:
        """Is so much waiting that no more may be heard?"""
        much = max(len(self._turns), len(self._tasks), self._answers.coding)
        return much >= _MOST_WAITING or len(self._calls) >= _MOST_CALLS

    def _hear_on(self) -> None:
        if self._paused and not self._full and not self._channel.closed:
            self._paused = False
            self._frames.resume()

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

    # -- filler ----------------------------------------------------------------

    def _warm(self, warm: wire.Warm) -> None:
        if not 0 <= warm.n_bytes <= _MAX_RAW_BYTES:
            raise RecordError(f"{warm.n_bytes} bytes of filler asked for")

        def begin() -> None:
            self._turns.more = partial(self._fill, warm.n_bytes)
            self._turns.say_now(Kind.FILL, warm)

        self._turns.queue(BACKGROUND, begin)

    def _fill(self, n_bytes: int) -> None:
        whole = filler(min(n_bytes, _FILL_PIECE_BYTES))
        pieces: list[memoryview | bytes] = []
        while n_bytes and len(pieces) < _FILL_BATCH:
            pieces.append(whole[: min(n_bytes, len(whole))])
            n_bytes -= len(pieces[-1])
        if n_bytes:
            self._turns.more = partial(self._fill, n_bytes)
        if pieces:
            self._turns.send(pieces)

    # -- calls -----------------------------------------------------------------

    async def _answer_calls(self) -> None:
        """One after the other: a peer's later word must not overtake its earlier one."""
        try:
            while self._calls:
                call = self._calls.popleft()
                self._turns.say(Kind.REPLY, await self._reply(call))
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

    # -- payload ---------------------------------------------------------------

    def _payload(self, ticket: wire.Ticket) -> Sequence[Segment]:
        places = self._offers.payload(ticket)
        self._landed = partial(self._offers.keep, ticket.id)
        return places

    # -- registered memory -----------------------------------------------------

    def _read(self, access: wire.Access) -> None:
        def begin() -> None:
            views = self._desk.memory.views(access.places)
            if isinstance(views, str):
                self._turns.say_now(Kind.MISS, wire.Miss(access.id, views))
                return
            ticket = wire.Ticket(access.id, sum(map(len, views)))
            frame = self._codec.pack(Kind.DATA, wire.encode(ticket))
            self._turns.send([frame, *views])

        self._turns.queue(PUSH, begin)

    def _write(self, access: wire.Access) -> Sequence[Segment]:
        total = sum(place.n_bytes for place in access.places)
        if total > _MAX_RAW_BYTES or any(place.n_bytes < 1 for place in access.places):
            raise RecordError(f"a write of {total} bytes")
        views = self._desk.memory.views(access.places)
        if isinstance(views, str):
            self._landed = partial(self._turns.say, Kind.MISS, wire.Miss(access.id, views))
            return [Segment(total)]
        self._landed = partial(self._turns.say, Kind.DONE, wire.Ticket(access.id))
        return [Segment(len(view), view) for view in views]

    # -- ending ----------------------------------------------------------------

    def _ended(self, error: FetchError) -> None:
        self._idle.cancel()
        self._turns.stop()
        for task in list(self._tasks):
            task.cancel()
        self._answers.forgo()
        self._answers.end(error.cause)
        self._turns.finish(error.cause)
        self._offers.end(error.cause)
        if not self.over.done():
            self.over.set_result(error)
