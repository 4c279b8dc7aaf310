"""Right of way: what nobody waits for gives way to what a request waits for.

Priorities order what waits for *one* connection. Pushes and answers to fetches run on
different ones, where TCP would share the line between them, so a push goes in small
pieces and each of them waits until no fetch is being answered. What is in the network
by then cannot be called back: a fetch waits for one window of the push at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PIECE_BYTES = 64 * 1024
_LOOK_S = 1e-3


class RightOfWay:
    """Of one site, over all its connections. Costs nothing while nobody gives way."""

    def __init__(self) -> None:
        self._answering = 0
        self._on_line: dict[Callable[[], int], None] = {}
        self._clear: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def enter(self) -> None:
        """An answer that a request waits for begins."""
        self._answering += 1

    def leave(self, unacknowledged: Callable[[], int]) -> None:
        """It is in the kernel's hands, or has ended.

        Args:
            unacknowledged: bytes of its connection that have not arrived yet. The next
                request of the same fetch is here about when the last of them has.
        """
        self._answering -= 1
        self._on_line[unacknowledged] = None
        if self._clear is not None:
            self._look_later()

    async def clear(self) -> None:
        """Return when no request waits for what this site sends."""
        while self._taken():
            if self._clear is None:
                self._clear = asyncio.get_running_loop().create_future()
            self._look_later()
            await asyncio.shield(self._clear)

    def _taken(self) -> bool:
        if not self._answering:
            self._on_line = {left: None for left in self._on_line if left()}
        return bool(self._answering or self._on_line)

    def _look_later(self) -> None:
        if not self._answering and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._taken():
            self._look_later()
        elif self._clear is not None:
            clear, self._clear = self._clear, None
            clear.set_result(None)
