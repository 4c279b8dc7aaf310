"""Answers of one connection that have to be coded first, where that takes time.

From the moment its coding is asked for an answer's chunk is pinned, and for its lease at
most: waiting for the codec and for its turn on the line counts. What has not been sent at
all by then is a miss, and the connection stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from geokv.cache.codec import Codec
from geokv.cache.codec_time import CodecTime
from geokv.cache.layout import ChunkLayout
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.coded import Coded, code
from geokv.cache.substrate.transport import Served
from geokv.clock import now_ns
from geokv.units import NS_PER_S


@dataclass(eq=False)
class Encoding:
    """One answer.

    Attributes:
        until_ns: end of its lease.
        coded: what ``code`` makes of it.
    """

    get: wire.Get
    served: Served
    priority: int
    until_ns: int
    coded: asyncio.Future[Coded | None]
    timer: asyncio.TimerHandle | None = None


class Encodings:
    """What one connection has to code or to send coded.

    Args:
        ready: told each answer that is coded and waits for its turn; ``take`` it then.
        dropped: told each answer that will not be sent, with the cause; it is released.
    """

    def __init__(
        self,
        time: CodecTime,
        layout: ChunkLayout,
        ready: Callable[[Encoding], None],
        dropped: Callable[[Encoding, str], None],
    ) -> None:
        self._time = time
        self._layout = layout
        self._ready = ready
        self._dropped = dropped
        self._open: dict[Encoding, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, get: wire.Get, served: Served, codec: Codec, priority: int) -> None:
        """Code ``served``, which is this one's to release from now on."""
        n_bytes = sum(map(len, served.pieces))
        work = partial(code, served.pieces, self._layout, codec)
        coded = self._time.encode(codec.name, n_bytes, priority, work)
        one = Encoding(get, served, priority, now_ns() + served.lease_ns, coded)
        self._open[one] = None
        served.revoke = partial(self.drop, one)
        lease_s = served.lease_ns / NS_PER_S
        one.timer = asyncio.get_running_loop().call_later(lease_s, self.drop, one, "lease")
        coded.add_done_callback(partial(self._coded, one))

    def _coded(self, one: Encoding, coded: asyncio.Future[Coded | None]) -> None:
        if one not in self._open:
            return
        if coded.cancelled():
            self.drop(one, "cancelled")
        elif (error := coded.exception()) is not None:
            self.drop(one, "failed")
            raise error
        else:
            self._ready(one)

    def take(self, one: Encoding) -> int:
        """Its turn has come: what is left of its lease, in ns, and it is the caller's to
        release from now on; 0 if it is not to be sent."""
        if one not in self._open:
            return 0
        left_ns = one.until_ns - now_ns()
        if left_ns <= 0:
            self.drop(one, "lease")
            return 0
        self._forget(one)
        return left_ns

    def drop(self, one: Encoding, cause: str) -> None:
        """It is not sent."""
        self._forget(one)
        one.coded.cancel()
        one.served.release()
        self._dropped(one, cause)

    def end(self, cause: str) -> None:
        """The connection is over."""
        for one in list(self._open):
            self.drop(one, cause)

    def _forget(self, one: Encoding) -> None:
        del self._open[one]
        one.served.revoke = None
        if one.timer is not None:
            one.timer.cancel()
