"""Work that no caller waits for, so that somebody can wait for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from geokv.clock import now_ns
from geokv.errors import CacheError
from geokv.units import NS_PER_S


class Background:
    """The tasks of one site's cache.

    Args:
        site: for messages.
    """

    def __init__(self, site: str) -> None:
        self._site = site
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work`` beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self.keep(task)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Nobody else waits for this task any more."""
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    async def quiesce(self, deadline_ns: int) -> None:
        """Wait until nothing is under way.

        Raises:
            CacheError: something still is at the deadline.
        """
        while self._tasks:
            seconds = max(0.0, (deadline_ns - now_ns()) / NS_PER_S)
            _, waiting = await asyncio.wait(set(self._tasks), timeout=seconds)
            if waiting and now_ns() >= deadline_ns:
                raise CacheError(f"{len(waiting)} background tasks of {self._site!r} did not end")

    async def cancel(self, patience_s: float) -> int:
        """Cancel everything; how much of it has not ended after ``patience_s``."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        return len((await asyncio.wait(tasks, timeout=patience_s))[1]) if tasks else 0
