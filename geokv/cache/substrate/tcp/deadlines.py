"""Many deadlines, one timer.

Nearly every request ends long before its deadline. A timer of the event loop for each
costs more than the rest of the bookkeeping of a small chunk, so there is one, which
stays set when what it was set for has ended and then finds nothing to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from geokv.units import NS_PER_S


class _Due(Protocol):
    @property
    def deadline_ns(self) -> int: ...


T = TypeVar("T", bound=_Due)


class Deadlines(Generic[T]):
    """Calls ``late`` once with everything that is still watched at its ``deadline_ns``.

    Of several that are due together the one that was watched first comes first.
    """

    def __init__(self, late: Callable[[T], None]) -> None:
        self._late = late
        self._watched: dict[T, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._set_for_ns = 0

    def watch(self, one: T) -> None:
        """Until ``forget`` or its deadline."""
        self._watched[one] = None
        if self._timer is None or one.deadline_ns < self._set_for_ns:
            self._set(one.deadline_ns)

    def forget(self, one: T) -> None:
        """It has ended; safe to call again."""
        self._watched.pop(one, None)

    def close(self) -> None:
        """Call nobody any more."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, deadline_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._set_for_ns = deadline_ns
        self._timer = loop.call_at(deadline_ns / NS_PER_S, self._look)

    def _look(self) -> None:
        """What the timer was set for is due, and whatever has the same deadline."""
        self._timer = None
        due = [one for one in self._watched if one.deadline_ns <= self._set_for_ns]
        for one in due:
            self.forget(one)
        if self._watched:
            self._set(min(one.deadline_ns for one in self._watched))
        loop = asyncio.get_running_loop()
        for one in due:
            loop.call_soon(self._late, one)
