"""The threads on which a disk's real work is done, and how to go on without one that hangs.

Not a ThreadPoolExecutor, because the interpreter waits for its threads when it ends: a disk
that hangs (a network file system without its server) would keep the process for ever.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from geokv.clock import now_ns
from geokv.units import NS_PER_S

T = TypeVar("T")


class DiskThreads:
    """Runs work beside the event loop, ``count`` pieces at a time, in order of arrival."""

    def __init__(self, count: int) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._abandoned = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, name=f"geokv-disk-{i}", daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def abandoned(self) -> bool:
        """Whether its work was given up, because the disk hangs."""
        return self._abandoned.is_set()

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises. A cancelled caller leaves after its end, because
        it owns the memory that the work reads or writes, or when all is abandoned.

        Raises:
            OSError: abandoned (``ETIMEDOUT``).
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self.abandoned:
            raise _hangs()
        self._waiting[future] = None
        self._queue.put(lambda: self._do(loop, future, work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                try:
                    await asyncio.shield(asyncio.wait([future]))
                except asyncio.CancelledError:
                    continue
            future.exception()
            raise
        finally:
            self._waiting.pop(future, None)

    def abandon(self) -> int:
        """Let everybody go who waits; what has not begun never will. How many waited.

        Memory of work that hangs must not be used again: it may still be written to.
        """
        self._abandoned.set()
        left = [future for future in self._waiting if not future.done()]
        for future in left:
            future.set_exception(_hangs())
        return len(left)

    def close(self, patience_s: float) -> int:
        """End the threads; how many did not within ``patience_s`` and are left to the
        process's end."""
        for _ in self._threads:
            self._queue.put(None)
        ends_ns = now_ns() + round(patience_s * NS_PER_S)
        for thread in self._threads:
            thread.join(max(0.0, (ends_ns - now_ns()) / NS_PER_S))
        return sum(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def _do(
        self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], work: Callable[[], T]
    ) -> None:
        if self.abandoned:
            return
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:
            failure = error
        # Nobody waits any more, and their loop may have ended.
        if not self.abandoned:
            loop.call_soon_threadsafe(_settle, future, result, failure)


def _settle(future: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)


def _hangs() -> OSError:
    return OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
