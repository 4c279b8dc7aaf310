"""All connections to one peer: a control stream and the data stripes.

Transfers wait in one queue, the most urgent first; each stripe takes the next whenever
it has fewer than ``in_flight`` requests out that are as urgent, so a slow stripe never
holds work that another could do, and what a request waits for is never held back by
what nobody waits for. Small calls have their own connection and never queue behind
payload.

A peer that does not answer is left alone for a while (0.5 s, doubling up to 30 s) and
then tried (``membership.Breaker``): only the first requests pay their deadline for it.

Longer than most: connections and queue decide together. Work that waits opens stripes, a stripe
that opens takes work, and silence of either is news of the peer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

from geokv.cache.codec_time import CodecTime
from geokv.cache.membership.breaker import Breaker
from geokv.cache.substrate.tcp.client import Stream, open_stream
from geokv.cache.substrate.tcp.deadlines import Deadlines
from geokv.cache.substrate.tcp.handshake import Identity
from geokv.cache.substrate.tcp.request import Request
from geokv.cache.substrate.tcp.sockets import SocketOptions
from geokv.cache.substrate.tcp.throttle import Throttle
from geokv.cache.substrate.transport import Transfer
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError
from geokv.units import NS_PER_S

CONTROL = -1
_MOST_UNSAID = 256
_REOPEN_NS = 5 * NS_PER_S
_PATIENCE_NS = NS_PER_S // 20
"""Silence for less than this says nothing about a peer, however short a deadline is."""


@dataclass(eq=False)
class Job:
    """Something that one of the data stripes is to do.

    Args:
        result: always ends, by the deadline at the latest.
        start: sends it; the request that is out then, or ``None`` if it ended at once.
        upload: it sends payload; a stripe has one of these at a time.
    """

    priority: int
    deadline_ns: int
    result: asyncio.Future[Any]
    start: Callable[[Stream], Request | None]
    upload: bool = False
    transfer: Transfer | None = None
    request: Request | None = None
    stream: Stream | None = None
    heard: int = 0


class Peer:
    """Client side of everything between this site and one other.

    Args:
        streams: data connections (stripes).
        in_flight: requests out at once on each stripe.
        codec: in which chunks may be coded on their way here.
        on_change: told (site, up, cause) when the peer is left alone or asked again.
        codecs: charge for decoding; None charges nothing.
    """

    def __init__(
        self,
        site: str,
        address: tuple[str, int],
        me: Identity,
        options: SocketOptions,
        streams: int,
        in_flight: int,
        throttle: Throttle,
        codec: str = "none",
        on_change: Callable[[str, bool, str], None] = lambda *_: None,
        codecs: CodecTime | None = None,
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
        self._throttle = throttle
        self._codec = codec
        self._codecs = codecs
        self._queue: list[tuple[int, int, Job]] = []
        self._order = 0
        self._unsaid: deque[bytes] = deque(maxlen=_MOST_UNSAID)
        self._jobs: dict[Transfer, Job] = {}
        self._deadlines: Deadlines[Job] = Deadlines(self._expire)
        self._connecting = asyncio.Lock()
        self._opening: asyncio.Task[None] | None = None
        self._heard = 0
        """Frames of streams that have ended."""
        self._breaker = Breaker(self._probe, lambda up, why: on_change(site, up, why))
        self._closed = False

    @property
    def up(self) -> bool:
        """False while the peer is left alone."""
        return self._breaker.closed

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
        self._tell()
        if not errors:
            self._breaker.good()
            return
        error = errors[0]
        cause = error.cause if isinstance(error, FetchError) else "failed"
        self.causes[cause] += 1
        if not self._closed:
            self._breaker.trip(cause)
        raise error

    async def _open(self, stripe: int, deadline_ns: int) -> None:
        stream = await open_stream(
            self.address,
            self.site,
            self._me,
            self._options,
            stripe,
            deadline_ns,
            self._throttle,
            self._changed,
        )
        if self._closed:
            await stream.close()
            raise FetchError("unreachable", "this site is closing")
        if stream.error is not None:
            raise stream.error
        self.incarnation = stream.incarnation
        self.layout = stream.layout
        self._streams[stripe] = stream

    def hold(self, cause: str) -> None:
        """The peer is known to be down: what is under way ends now as ``unreachable``, and
        nothing is asked until ``release``."""
        self._breaker.hold(cause)
        error = FetchError("unreachable", f"{self.site} is down ({cause})")
        for stream in list(self._streams.values()):
            stream.fail(error)
        self._reopen()

    def release(self) -> None:
        """The peer is known to be up again; connections are opened."""
        self._breaker.release()
        self._probe()

    def _probe(self) -> None:
        """Try the peer once; nobody waits for it."""
        if not self._closed and (self._opening is None or self._opening.done()):
            self._opening = asyncio.get_running_loop().create_task(self._open_missing())

    @property
    def _frames(self) -> int:
        """How many frames have come from the peer so far, over all connections."""
        return self._heard + sum(stream.frames for stream in self._streams.values())

    def _silent(self, waited_ns: int) -> None:
        """A deadline passed without one frame from the peer."""
        if waited_ns >= _PATIENCE_NS and self.up:
            self._breaker.trip("timeout")

    def _changed(self, stream: Stream) -> None:
        error = stream.error
        if error is None:
            # It answers. Whoever holds the peer down is not contradicted by an old answer.
            if not self._breaker.closed and not self._breaker.held:
                self._breaker.good()
        elif self._streams.get(stream.stripe) is stream:
            del self._streams[stream.stripe]
            self._heard += stream.frames
        self._pump()

    # -- transfers -------------------------------------------------------------

    def submit(self, transfer: Transfer) -> None:
        """Queue a read. Its future always ends: by the deadline at the latest."""
        job = Job(
            transfer.priority,
            transfer.deadline_ns,
            transfer.done,
            lambda stream: stream.get(transfer, self._codec, self._codecs),
            transfer=transfer,
        )
        self._jobs[transfer] = job
        self.queue(job)

    def queue(self, job: Job) -> None:
        """Do ``job`` when its turn comes."""
        job.heard = self._frames
        self._order += 1
        heappush(self._queue, (job.priority, self._order, job))
        self._pump()
        # The books are kept while the request is on its way.
        if not job.result.done():
            self._deadlines.watch(job)
        job.result.add_done_callback(partial(self._finished, job))
        if len(self._streams) < len(self._stripes) and self.up:
            self._reopen()

    def stop(self, transfer: Transfer) -> None:
        """The caller gives ``transfer`` up: when this returns, no byte of it can land."""
        job = self._jobs.get(transfer)
        if job is not None:
            self.give_up(job)

    def give_up(self, job: Job) -> None:
        """As ``stop``, of anything that was queued."""
        if job.stream is not None and job.request is not None:
            job.stream.stop(job.request)
        self._refuse(job, FetchError("cancelled", "the request was given up"))

    def _finished(self, job: Job, result: asyncio.Future[Any]) -> None:
        self._deadlines.forget(job)
        if job.transfer is not None:
            self._jobs.pop(job.transfer, None)
        if result.cancelled():
            self.causes["cancelled"] += 1
            self.give_up(job)
        elif isinstance(error := result.exception(), FetchError):
            self.causes[error.cause] += 1

    def _expire(self, job: Job) -> None:
        if job.result.done():
            return
        silent = job.heard == self._frames
        if job.stream is not None and job.request is not None:
            asked_ns = job.transfer.requested_ns if job.transfer is not None else 0
            job.stream.late(job.request)
            if silent:
                self._silent(now_ns() - asked_ns)
            return
        if silent:
            self._silent(_PATIENCE_NS)
        self._refuse(job, FetchError("timeout", f"no turn at {self.site} by the deadline"))

    def _refuse(self, job: Job, error: FetchError) -> None:
        if job.transfer is not None and job.transfer.state != "done":
            job.transfer.state = "error"
        if not job.result.done():
            job.result.set_exception(error)
            # Nobody may be waiting any more.
            job.result.exception()

    def _pump(self) -> None:
        """Give queued jobs to stripes, the least busy first."""
        if not self._queue:
            return
        stripes = self._data_streams()
        while self._queue and stripes:
            job = self._queue[0][2]
            if job.result.done():
                heappop(self._queue)
                continue
            stream = self._least_busy(stripes, job.priority)
            if stream.busy(job.priority) >= self._in_flight or (job.upload and stream.uploading):
                return
            heappop(self._queue)
            job.stream = stream
            job.request = job.start(stream)
            stripes = [one for one in stripes if one.error is None]
        if self._queue:
            self._reopen()

    @staticmethod
    def _least_busy(stripes: list[Stream], priority: int) -> Stream:
        for stream in stripes:
            if not stream.outstanding:
                return stream
        return min(
            stripes,
            key=lambda one: (one.uploading, one.busy(priority), one.outstanding, one.stripe),
        )

    def _data_streams(self) -> list[Stream]:
        return [stream for stripe, stream in self._streams.items() if stripe != CONTROL]

    def _reopen(self) -> None:
        """Open what is missing; when there is no hope, fail what waits."""
        if self._closed or not self.up:
            why = "this site is closing" if self._closed else f"{self.site} is left alone for now"
            self._refuse_all(FetchError("unreachable", why))
        else:
            self._probe()

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
        waiting, self._queue = self._queue, []
        for _, _, job in waiting:
            self._refuse(job, error)

    def notify(self, notice: bytes) -> None:
        """Tell the peer something; connects first if it must. Lost with the connection."""
        self._unsaid.append(notice)
        self._tell()
        if self._unsaid:
            self._reopen()

    def _tell(self) -> None:
        stream = self._streams.get(CONTROL)
        while self._unsaid and stream is not None and stream.error is None:
            stream.notify(self._unsaid.popleft())

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
        heard = self._frames
        try:
            return await stream.call(method, body, deadline_ns)
        except FetchError as error:
            if error.cause == "timeout" and heard == self._frames:
                # It cannot be told from here how long it was waited for.
                self._silent(_PATIENCE_NS)
            raise

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

    def abandon(self) -> None:
        """Close every connection now; what waits ends as ``unreachable``."""
        self._closed = True
        self._breaker.close()
        self._deadlines.close()
        if self._opening is not None:
            self._opening.cancel()
        for stream in list(self._streams.values()):
            stream.fail(FetchError("unreachable", "closed by this site"))
        for job in list(self._jobs.values()):
            # Whole, and still to be decoded.
            if job.request is not None and job.request.rest is not None:
                job.request.rest.cancel()
                self._refuse(job, FetchError("unreachable", "closed by this site"))
        self._pump()

    async def close(self) -> None:
        """Close every connection; what waits ends as ``unreachable``."""
        streams = list(self._streams.values())
        self.abandon()
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        await asyncio.gather(*(stream.close() for stream in streams))
