"""All connections to one peer: a control stream and the data stripes.

Transfers wait in one queue; each stripe takes the next whenever it has fewer than
``in_flight`` requests out, so a slow stripe never holds work that another could do.
Small calls have their own connection and never queue behind payload.

A peer that does not answer is left alone for a while (0.5 s, doubling up to 30 s):
only the first requests pay their deadline for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Any

from geokv.cache.keys import ChunkRef
from geokv.cache.substrate.tcp.client import Stream, open_stream
from geokv.cache.substrate.tcp.handshake import Identity
from geokv.cache.substrate.tcp.sockets import SocketOptions
from geokv.cache.substrate.transport import Transfer
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError
from geokv.units import NS_PER_S

CONTROL = -1
_STRIKES = 2
_FIRST_PAUSE_NS = NS_PER_S // 2
_REOPEN_NS = 5 * NS_PER_S
_LONGEST_PAUSE_NS = 30 * NS_PER_S


class Peer:
    """Client side of everything between this site and one other.

    Args:
        streams: data connections (stripes).
        in_flight: requests out at once on each stripe.
    """

    def __init__(
        self,
        site: str,
        address: tuple[str, int],
        me: Identity,
        options: SocketOptions,
        streams: int,
        in_flight: int,
    ) -> None:
        self.site = site
        self.address = address
        self.causes: Counter[str] = Counter()
        self.incarnation = 0
        self.layout = me.layout
        self._me = me
        self._options = options
        self._in_flight = in_flight
        self._stripes = [CONTROL, *range(streams)]
        self._streams: dict[int, Stream] = {}
        self._queue: deque[Transfer] = deque()
        self._connecting = asyncio.Lock()
        self._opening: asyncio.Task[None] | None = None
        self._strikes = 0
        self._pause_ns = _FIRST_PAUSE_NS
        self._down_until_ns = 0
        self._closed = False

    @property
    def up(self) -> bool:
        """False while the peer is left alone."""
        return now_ns() >= self._down_until_ns

    # -- connections -----------------------------------------------------------

    async def connect(self, deadline_ns: int) -> None:
        """Open every connection that is not open.

        Raises:
            FetchError: the first thing that went wrong.
        """
        try:
            async with asyncio.timeout_at(deadline_ns / NS_PER_S), self._connecting:
                missing = [stripe for stripe in self._stripes if stripe not in self._streams]
                opened = await asyncio.gather(
                    *(self._open(stripe, deadline_ns) for stripe in missing),
                    return_exceptions=True,
                )
        except TimeoutError:
            opened = [FetchError("timeout", f"{self.site} did not answer in time")]
        errors = [one for one in opened if isinstance(one, BaseException)]
        if not errors:
            self._good()
            return
        error = errors[0]
        if isinstance(error, FetchError):
            self.causes[error.cause] += 1
            self._pause()
        raise error

    async def _open(self, stripe: int, deadline_ns: int) -> None:
        stream = await open_stream(
            self.address,
            self.site,
            self._me,
            self._options,
            stripe,
            deadline_ns,
            self._changed,
        )
        if self._closed:
            await stream.close()
            raise FetchError("unreachable", "this site is closing")
        self.incarnation = stream.incarnation
        self.layout = stream.layout
        self._streams[stripe] = stream

    def _good(self) -> None:
        self._strikes = 0
        self._pause_ns = _FIRST_PAUSE_NS
        self._down_until_ns = 0

    def _pause(self) -> None:
        self._down_until_ns = now_ns() + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, _LONGEST_PAUSE_NS)

    def _strike(self) -> None:
        """A deadline passed without one byte from the peer."""
        self._strikes += 1
        if self._strikes >= _STRIKES and self.up:
            self._pause()

    def _changed(self, stream: Stream) -> None:
        error = stream.error
        if error is None:
            self._good()
        elif self._streams.get(stream.stripe) is stream:
            del self._streams[stream.stripe]
            if error.cause == "timeout" and stream.silent:
                self._strike()
        self._pump()

    # -- chunks ----------------------------------------------------------------

    def submit(self, ref: ChunkRef, into: memoryview, deadline_ns: int) -> Transfer:
        """Queue a read. Its future always ends: by the deadline at the latest."""
        loop = asyncio.get_running_loop()
        transfer = Transfer(ref, into, deadline_ns, loop.create_future(), layout=self.layout)
        timer = loop.call_at(deadline_ns / NS_PER_S, self._expire, transfer)
        transfer.done.add_done_callback(lambda done: self._finished(done, timer))
        self._queue.append(transfer)
        self._pump()
        if len(self._streams) < len(self._stripes) and self.up:
            self._reopen()
        return transfer

    def _finished(self, done: asyncio.Future[Any], timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        if done.cancelled():
            self.causes["cancelled"] += 1
        elif isinstance(error := done.exception(), FetchError):
            self.causes[error.cause] += 1

    def _expire(self, transfer: Transfer) -> None:
        if transfer.state == "queued":
            if not self._data_streams():
                self._strike()
            self._refuse(transfer, FetchError("timeout", f"no turn at {self.site} by the deadline"))

    def _refuse(self, transfer: Transfer, error: FetchError) -> None:
        transfer.state = "error"
        if not transfer.done.done():
            transfer.done.set_exception(error)

    def _next(self) -> Transfer | None:
        while self._queue:
            transfer = self._queue.popleft()
            if not transfer.done.done():
                return transfer
        return None

    def _pump(self) -> None:
        """Give queued transfers to stripes, the least busy first."""
        stripes = self._data_streams()
        while self._queue and stripes:
            stream = min(stripes, key=lambda one: (one.outstanding, one.stripe))
            if stream.outstanding >= self._in_flight:
                return
            transfer = self._next()
            if transfer is not None:
                stream.get(transfer)
            stripes = [one for one in stripes if one.error is None]
        if self._queue:
            self._reopen()

    def _data_streams(self) -> list[Stream]:
        return [stream for stripe, stream in self._streams.items() if stripe != CONTROL]

    def _reopen(self) -> None:
        """Open what is missing; when there is no hope, fail what waits."""
        if self._closed or not self.up:
            why = "this site is closing" if self._closed else f"{self.site} is left alone for now"
            self._refuse_all(FetchError("unreachable", why))
        elif self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open_missing())

    async def _open_missing(self) -> None:
        try:
            await self.connect(now_ns() + _REOPEN_NS)
        except FetchError as error:
            self._refuse_all(error)
        except CacheError as error:
            self._refuse_all(FetchError("unreachable", error.message))
        self._pump()

    def _refuse_all(self, error: FetchError) -> None:
        if self._data_streams():
            return
        while (transfer := self._next()) is not None:
            self._refuse(transfer, error)

    # -- the rest --------------------------------------------------------------

    async def reconnect(self, deadline_ns: int) -> None:
        """Close every connection and open new ones, which know nothing of the old path.

        Raises:
            FetchError: the first thing that went wrong.
        """
        old, self._streams = list(self._streams.values()), {}
        await asyncio.gather(*(stream.close() for stream in old))
        await self.connect(deadline_ns)

    async def warm(self, n_bytes: int, deadline_ns: int) -> None:
        """Pull filler over every data stripe at once, to open congestion windows.

        Raises:
            FetchError: a stripe failed.
        """
        await self.connect(deadline_ns)
        streams = self._data_streams()
        await asyncio.gather(*(stream.warm(n_bytes, deadline_ns) for stream in streams))

    async def call(self, method: str, body: bytes, deadline_ns: int) -> bytes:
        """One request on the control stream.

        Raises:
            FetchError: ``unreachable``, ``timeout`` or ``refused``.
        """
        if CONTROL not in self._streams:
            if not self.up:
                raise FetchError("unreachable", f"{self.site} is left alone for now")
            await self.connect(deadline_ns)
        stream = self._streams.get(CONTROL)
        if stream is None:
            raise FetchError("unreachable", f"the connection to {self.site} was lost again")
        return await stream.call(method, body, deadline_ns)

    def stats(self) -> dict[str, Any]:
        """Addresses, counters and the kernel's view of every open connection."""
        return {
            "address": f"{self.address[0]}:{self.address[1]}",
            "incarnation": self.incarnation,
            "up": self.up,
            "queued": len(self._queue),
            "causes": dict(self.causes),
            "streams": {
                "control" if stripe == CONTROL else str(stripe): stream.tcp_info()
                for stripe, stream in sorted(self._streams.items())
            },
        }

    async def close(self) -> None:
        """Close every connection; what waits ends as ``unreachable``."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await asyncio.gather(*(stream.close() for stream in list(self._streams.values())))
        self._pump()
