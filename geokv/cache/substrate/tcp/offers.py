"""Chunks that a peer pushes over one connection: offered, accepted, landed, checked, kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import xxhash

from geokv.cache import record
from geokv.cache.filler import group_filler
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel, Segment
from geokv.cache.substrate.tcp.desk import Desk
from geokv.cache.substrate.tcp.handshake import Session
from geokv.cache.substrate.tcp.wire import Kind
from geokv.cache.substrate.transport import Landing
from geokv.errors import FetchError, RecordError

_MOST_OFFERS = 64


@dataclass
class _Offered:
    header: ChunkHeader
    landing: Landing
    timer: asyncio.TimerHandle
    hashers: list[Any]


class Offers:
    """Those that are open.

    Args:
        say: queues a small answer.
    """

    def __init__(
        self,
        desk: Desk,
        session: Session,
        channel: Channel,
        say: Callable[[Kind, msgspec.Struct], None],
    ) -> None:
        self._desk = desk
        self._session = session
        self._channel = channel
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, _Offered] = {}

    def offer(self, offer: wire.Offer) -> None:
        """Take it, or say why not.

        Raises:
            RecordError: its id is in use, or its header cannot be read.
        """
        if offer.id in self._open:
            raise RecordError(f"offer {offer.id} was made before")
        header = record.parse(offer.header)
        sink, session = self._desk.sink, self._session
        if sink is None:
            landing: Landing | str = "refused"
        elif len(self._open) >= _MOST_OFFERS:
            landing = "full"
        else:
            landing = sink.reserve(header, session.peer, session.incarnation)
        if isinstance(landing, str):
            self._say(Kind.MISS, wire.Miss(offer.id, landing))
            return
        timer = self._loop.call_later(self._desk.send_s, self._late, offer.id)
        self._open[offer.id] = _Offered(header, landing, timer, [])
        self._say(Kind.ACCEPT, wire.Ticket(offer.id))

    def _late(self, id_: int) -> None:
        offered = self._open[id_]
        if offered.hashers:
            # Bytes are landing: only the end of the connection ends that.
            self._channel.close(FetchError("timeout", "a pushed chunk did not come in time"))
            return
        del self._open[id_]
        offered.landing.abort("timeout")

    def payload(self, ticket: wire.Ticket) -> Sequence[Segment]:
        """Where the bytes of an accepted offer go; ``keep`` it when they are there.

        Raises:
            RecordError: it is not open, or its bytes are not those of a chunk.
        """
        offered = self._open.get(ticket.id)
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
        return places

    def keep(self, id_: int) -> None:
        """All its bytes are there: check them, make the chunk readable, and say so."""
        offered = self._open.pop(id_)
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

    def end(self, cause: str) -> None:
        """The connection has ended, and with it all that were open."""
        offers, self._open = self._open, {}
        for offered in offers.values():
            offered.timer.cancel()
            offered.landing.abort(cause)
