"""The time of a site's codecs: one serial resource per direction, over all connections.

What waits is taken by urgency, in order within it; what has begun is not called back.
Work is done when its turn begins and its result is there when its charge is used up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, TypeVar

from geokv.cache.codec import CODECS
from geokv.cache.codec_cost import CodecCost
from geokv.clock import now_ns, wait_until_ns
from geokv.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class _Job:
    asked_ns: int
    occupied_ns: int
    work: Callable[[], Any]
    done: asyncio.Future[Any]


class _Direction:
    """
    Attributes:
        late_ns: time by which real work outlasted its charge, summed.
        busy_ns: time charged.
    """

    def __init__(self) -> None:
        self.late_ns = 0
        self.busy_ns = 0
        self._waiting: list[tuple[int, int, _Job]] = []
        self._order = 0
        self._free_ns = 0
        self._working: asyncio.Task[None] | None = None

    def do(self, priority: int, occupied_ns: int, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._order += 1
        heappush(self._waiting, (priority, self._order, _Job(now_ns(), occupied_ns, work, done)))
        if self._working is None:
            self._working = loop.create_task(self._work())
        return done

    async def _work(self) -> None:
        try:
            while self._waiting:
                job = heappop(self._waiting)[2]
                if not job.done.done():
                    await self._one(job)
        finally:
            self._working = None

    async def _one(self, job: _Job) -> None:
        self._free_ns = end_ns = max(job.asked_ns, self._free_ns) + job.occupied_ns
        self.busy_ns += job.occupied_ns
        result, failure = None, None
        try:
            result = job.work()
        except Exception as error:
            failure = error
        self.late_ns += max(0, now_ns() - end_ns)
        try:
            await wait_until_ns(end_ns)
        except asyncio.CancelledError:
            job.done.cancel()
            raise
        if job.done.done():
            return
        if failure is not None:
            job.done.set_exception(failure)
        else:
            job.done.set_result(result)

    def close(self) -> None:
        if self._working is not None:
            self._working.cancel()
        for _, _, job in self._waiting:
            job.done.cancel()
        self._waiting.clear()


class CodecTime:
    """Does work that a codec is charged for.

    Cancelling the future of a piece of work drops it: when ``cancel`` returns it either
    has been done already or never will be.

    Args:
        costs: by codec, of every one.

    Raises:
        ConfigError: a codec has none.
    """

    def __init__(self, costs: Mapping[str, CodecCost]) -> None:
        if missing := [name for name in CODECS if name not in costs]:
            raise ConfigError(f"codec costs: none of {', '.join(missing)}")
        self._costs = dict(costs)
        self._encoding = _Direction()
        self._decoding = _Direction()

    def encode(
        self, codec: str, n_bytes: int, priority: int, work: Callable[[], T]
    ) -> asyncio.Future[T]:
        """``work``'s result, when coding ``n_bytes`` is over."""
        return self._encoding.do(priority, self._costs[codec].encode_ns(n_bytes), work)

    def decode(
        self, codec: str, n_bytes: int, priority: int, work: Callable[[], T]
    ) -> asyncio.Future[T]:
        """``work``'s result, when decoding to ``n_bytes`` is over."""
        return self._decoding.do(priority, self._costs[codec].decode_ns(n_bytes), work)

    def stats(self) -> dict[str, int]:
        """Per direction: ns spent coding, and ns by which its work was late."""
        return {
            "encode_busy_ns": self._encoding.busy_ns,
            "encode_late_ns": self._encoding.late_ns,
            "decode_busy_ns": self._decoding.busy_ns,
            "decode_late_ns": self._decoding.late_ns,
        }

    def close(self) -> None:
        """Drop everything."""
        self._encoding.close()
        self._decoding.close()
