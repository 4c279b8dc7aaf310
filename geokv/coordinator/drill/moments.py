"""What a timeline can wait for: counts of requests, and what became of earlier faults."""

from __future__ import annotations

import asyncio

from geokv.scenario.timeline import Condition


class Moments:
    """Counts and states of one drill; ``reached`` wakes as soon as a condition is true."""

    def __init__(self) -> None:
        self.sent = 0
        self.done = 0
        self._states: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()

    def count_sent(self) -> None:
        """One request more is on its way."""
        self.sent += 1
        self._wake()

    def count_done(self) -> None:
        """One request more has ended, however."""
        self.done += 1
        self._wake()

    def mark(self, fault: str, state: str) -> None:
        """A fault ``took_effect`` or is ``healed``."""
        self._states.add((fault, state))
        self._wake()

    def holds(self, condition: Condition) -> bool:
        """Whether it is true now."""
        if condition.fault is not None:
            return (condition.fault, condition.state) in self._states
        return (self.sent if condition.requests == "sent" else self.done) >= condition.at_least

    async def reached(self, condition: Condition) -> None:
        """Return when it is true; the caller has the deadline."""
        while not self.holds(condition):
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
