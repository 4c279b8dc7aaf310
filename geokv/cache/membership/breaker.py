"""A circuit breaker towards one peer: after a deadline that passed in silence it is left
alone, then tried once, and only when that has worked is it asked again.

Nobody's request is ever the one that tries: whoever asks meanwhile is told at once that
the peer is left alone, and computes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geokv.clock import now_ns
from geokv.units import NS_PER_S

FIRST_PAUSE_NS = NS_PER_S // 2
LONGEST_PAUSE_NS = 30 * NS_PER_S


class Breaker:
    """Closed: the peer is asked. Open: it is left alone, for a pause that doubles with
    every try in vain. Held: it is left alone until somebody who knows better lets go.

    Args:
        probe: tries the peer once; ends in ``good`` or ``trip``.
        on_change: told True when the peer may be asked again and False, with the cause,
            when it may not.
    """

    def __init__(self, probe: Callable[[], None], on_change: Callable[[bool, str], None]) -> None:
        self.trips = 0
        self._probe = probe
        self._on_change = on_change
        self._pause_ns = FIRST_PAUSE_NS
        self._timer: asyncio.TimerHandle | None = None
        self._cause = ""
        self._held = ""

    @property
    def closed(self) -> bool:
        """May the peer be asked?"""
        return not self._cause and not self._held

    @property
    def held(self) -> bool:
        """Does somebody say that it is down?"""
        return bool(self._held)

    def trip(self, cause: str) -> None:
        """It did not answer."""
        told, self._cause = self.closed, cause
        self.trips += told
        self._stop()
        if not self._held:
            self._timer = asyncio.get_running_loop().call_at(
                (now_ns() + self._pause_ns) / NS_PER_S, self._probe
            )
        self._pause_ns = min(2 * self._pause_ns, LONGEST_PAUSE_NS)
        if told:
            self._on_change(False, cause)

    def good(self) -> None:
        """It answered."""
        self._pause_ns = FIRST_PAUSE_NS
        self._stop()
        before, self._cause = self.closed, ""
        if self.closed and not before:
            self._on_change(True, "")

    def hold(self, cause: str) -> None:
        """It is down, whatever it seems to be from here."""
        before, self._held = self.closed, cause
        self._stop()
        if before:
            self._on_change(False, cause)

    def release(self) -> None:
        """It is up, whatever it seemed to be from here."""
        self._held = ""
        self.good()

    def close(self) -> None:
        """Try no more."""
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
