"""Chunks that one connection is asked for: opened, coded where that is asked, sent, let go.

A chunk is pinned while it is sent and at most for its lease: then the connection is closed, because
half a record can be of no use to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from geokv.cache.codec import CODECS, Codec
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.coded import Coded, code
from geokv.cache.substrate.tcp.desk import Desk
from geokv.cache.substrate.tcp.encoding import Encoding, Encodings
from geokv.cache.substrate.tcp.turns import Turns
from geokv.cache.substrate.tcp.wire import FrameCodec, Kind
from geokv.cache.substrate.transport import BACKGROUND, FETCH, URGENT, Ended, Served
from geokv.errors import FetchError
from geokv.units import NS_PER_S


class ChunkAnswers:
    """Answers GETs.

    Args:
        peer: who asks.
        spawn: runs work that the connection waits for.
    """

    def __init__(
        self,
        desk: Desk,
        peer: str,
        channel: Channel,
        codec: FrameCodec,
        turns: Turns,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._desk = desk
        self._peer = peer
        self._channel = channel
        self._codec = codec
        self._turns = turns
        self._spawn = spawn
        self._reached: dict[int, bytes] = {}
        self._encodings: Encodings | None = None
        if desk.codecs is not None:
            self._encodings = Encodings(desk.codecs, desk.layout, self._coded, self._uncoded)

    @property
    def coding(self) -> int:
        """Answers that are coded, or wait for it or for their turn after it."""
        return len(self._encodings or ())

    def get(self, get: wire.Get) -> None:
        """Answer when its turn comes, once the chunk can be read."""
        priority = max(URGENT + 1, min(get.priority, BACKGROUND))
        answer = partial(self._turns.queue, priority, partial(self._chunk, get))
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
        desk, peer = self._desk, self._peer
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
        served = self._opened(get, self._turns.say_now)
        if served is not None:
            self._answer(get, served, served.lease_ns, partial(self._code, get, served))

    def _encode(self, get: wire.Get, codec: Codec, priority: int, encodings: Encodings) -> None:
        served = self._opened(get, self._turns.say)
        if served is not None:
            encodings.begin(get, served, codec, priority)

    def _coded(self, one: Encoding) -> None:
        self._turns.queue(one.priority, partial(self._send_coded, one))

    def _send_coded(self, one: Encoding) -> None:
        left_ns = self._encodings.take(one) if self._encodings is not None else 0
        if left_ns:
            self._answer(one.get, one.served, left_ns, one.coded.result)

    def _uncoded(self, one: Encoding, cause: str) -> None:
        ended = Ended(cause, generation=one.served.generation)
        self._desk.source.closed(one.get.key, self._peer, ended)
        if not self._channel.closed:
            self._turns.say(Kind.MISS, wire.Miss(one.get.id, cause))

    def _answer(
        self, get: wire.Get, served: Served, lease_ns: int, coded: Callable[[], Coded | None]
    ) -> None:
        desk, peer = self._desk, self._peer
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
            self._turns.send([frame, *pieces], limit_s, "lease", finish)
            return
        self._turns.hold(limit_s, "lease", finish)
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
            await self._desk.throttle.send(self._channel, pieces, self._peer, tenant)
        except FetchError as error:
            self._channel.close(error)
        else:
            self._turns.sent()

    def forgo(self) -> None:
        """The connection has ended: what was brought up for it is let go."""
        reached, self._reached = self._reached, {}
        for key in reached.values():
            self._desk.source.forgo(key)

    def end(self, cause: str) -> None:
        """What is being coded will not be sent."""
        if self._encodings is not None:
            self._encodings.end(cause)


def _codec_of(get: wire.Get) -> Codec | None:
    """In which the answer may be coded, if it gets shorter."""
    codec = CODECS.get(get.codec)
    return None if codec is not None and codec.lossy and get.exact else codec
