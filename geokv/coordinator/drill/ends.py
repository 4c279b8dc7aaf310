"""The end of what lasts: of everything when the stream is over, of one fault when it is asked."""

from __future__ import annotations

import asyncio


class Ends:
    """Whoever waits is woken in the order in which they began to wait.

    Attributes:
        over: the stream is over.
    """

    def __init__(self) -> None:
        self.over = False
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    async def wait(self, name: str) -> None:
        """Return when everything ends, or what is called ``name``."""
        if self.over:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (name, waiter)
        self._waiting.append(entry)
        try:
            await waiter
        finally:
            self._waiting.remove(entry)

    def end_all(self) -> None:
        """The stream is over."""
        self.over = True
        self._wake(None)

    def end(self, name: str) -> None:
        """One thing ends before."""
        self._wake(name)

    def _wake(self, name: str | None) -> None:
        for waits_for, waiter in self._waiting:
            if name in (None, waits_for) and not waiter.done():
                waiter.set_result(None)
