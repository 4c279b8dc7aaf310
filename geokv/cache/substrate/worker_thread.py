"""One thread for an engine that must be polled, and is not safe to call from two."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from geokv.errors import CacheError

Result = TypeVar("Result")


class PollingThread:
    """Runs calls in order, and ``poll`` again and again while it returns True.

    Args:
        poll: one look at what is under way; True if something still is.
        busy_s, idle_s: between two looks while something is under way, and while
            nothing is.
    """

    def __init__(self, name: str, poll: Callable[[], bool], busy_s: float, idle_s: float) -> None:
        self._poll = poll
        self._busy_s = busy_s
        self._idle_s = idle_s
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake = threading.Event()
        self._ending = False
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Run ``call`` in the thread."""
        future: Future[Result] = Future()
        if self._ending:
            why = f" ({self._fault})" if self._fault else ""
            future.set_exception(CacheError(f"the engine's thread has ended{why}"))
            return future
        self._calls.append((call, future))
        self._wake.set()
        return future

    def do(self, call: Callable[[], Result], limit_s: float = 10.0) -> Result:
        """Run ``call`` in the thread and wait for it."""
        return self.submit(call).result(limit_s)

    async def ask(self, call: Callable[[], Result]) -> Result:
        """As ``do``, while the event loop goes on."""
        return await asyncio.wrap_future(self.submit(call))

    def end(self, limit_s: float = 10.0) -> None:
        """No call is accepted any more; returns when the thread has ended."""
        self._ending = True
        self._wake.set()
        self._thread.join(limit_s)

    def _run(self) -> None:
        while not self._ending or self._calls:
            while self._calls:
                call, future = self._calls.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    result = call()
                except BaseException as error:  # handed to whoever waits for it
                    future.set_exception(error)
                else:
                    future.set_result(result)
            try:
                busy = self._poll()
            except Exception as error:  # the engine's own: whoever asks next is told
                self._fault = error
                self._ending = True
                continue
            if self._wake.wait(self._busy_s if busy else self._idle_s):
                self._wake.clear()
