"""What happens to a site's events on their way to the directory: lost, told twice, overtaken."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from geokv.cache.ownership import SequencedDirectory
from geokv.cache.ownership.sequenced import Say, Told
from geokv.clock import now_ns, wait_until_ns
from geokv.errors import CacheError

_LOOK_AGAIN_NS = 1_000_000_000


class EventWay:
    """Stands between a site and the table. Of an event that is lost or late the site learns
    nothing, as of a datagram; comparisons and questions are left alone.

    Attributes:
        counters: ``lost``, ``duplicated``, ``overtaken``, each since it last began.
        first_ns: when the first of each was.
    """

    def __init__(self, directory: SequencedDirectory, seed: int) -> None:
        self.counters: Counter[str] = Counter()
        self.first_ns: dict[str, int] = {}
        self._loss = self._duplicate = 0.0
        self._window_ns = 0
        self._rng = random.Random(seed)
        self._deliver = directory.deliver
        self._waiting: dict[asyncio.Task[None], int] = {}
        self._delivered = 0
        directory.deliver = self._send

    def set(
        self,
        loss: float | None = None,
        duplicate: float | None = None,
        window_ns: int | None = None,
    ) -> None:
        """From now on; 0 ends it, and what was counted stays. What is None is left as it is.

        Args:
            window_ns: events wait for up to so long before they go.
        """
        for what, asked in (("lost", loss), ("duplicated", duplicate), ("overtaken", window_ns)):
            if asked:
                self.counters.pop(what, None)
                self.first_ns.pop(what, None)
        self._loss = self._loss if loss is None else loss
        self._duplicate = self._duplicate if duplicate is None else duplicate
        self._window_ns = self._window_ns if window_ns is None else window_ns

    async def _send(self, say: Say, deadline_ns: int) -> Told | None:
        if self._rng.random() < self._loss:
            self._note("lost")
            return None
        if self._window_ns:
            wait_ns = self._rng.randrange(self._window_ns)
            task = asyncio.get_running_loop().create_task(self._later(say, wait_ns))
            self._waiting[task] = say.seq
            task.add_done_callback(self._waiting.pop)
            return None
        told = await self._deliver(say, deadline_ns)
        if self._rng.random() < self._duplicate:
            self._note("duplicated")
            await self._deliver(say, deadline_ns)
        return told

    async def _later(self, say: Say, wait_ns: int) -> None:
        await wait_until_ns(now_ns() + wait_ns)
        if say.seq < self._delivered:
            self._note("overtaken")
        self._delivered = max(self._delivered, say.seq)
        try:
            await self._deliver(say, now_ns() + _LOOK_AGAIN_NS)
        except CacheError:
            self.counters["undelivered"] += 1

    def _note(self, what: str) -> None:
        self.counters[what] += 1
        self.first_ns.setdefault(what, now_ns())
