"""Packets with numbers: which of them came, when, and which are known to be lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from geokv.clock import now_ns


class Arrivals:
    """Numbers of packets, and when each came."""

    def __init__(self) -> None:
        self.came_ns: dict[int, int] = {}
        self._some = asyncio.Event()

    def add(self, number: int) -> None:
        """``number`` came, now; a second one of it changes nothing."""
        self.came_ns.setdefault(number, now_ns())
        self._some.set()

    async def more(self, wait_s: float) -> bool:
        """Wait for the next; False when none came meanwhile."""
        self._some.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._some.wait()
        return self._some.is_set()


def lost_in_a_row(
    sent: Sequence[tuple[int, int]], came_ns: Mapping[int, int], given_up_ns: int
) -> list[int]:
    """When the latest packets that are known to be lost were sent.

    A packet is lost when a later one has come, or when it was sent before ``given_up_ns``.
    """
    last = max(came_ns, default=-1)
    lost: list[int] = []
    for number, sent_ns in sent:
        if number in came_ns:
            lost.clear()
        elif number < last or sent_ns <= given_up_ns:
            lost.append(sent_ns)
        else:
            break
    return lost
