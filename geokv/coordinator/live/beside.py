"""Watching a drill: tasks in its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.live.desk import Desk, Do
from geokv.coordinator.live.sampler import Sampler


class Beside:
    """Samples and commands of one cell of a drill."""

    def __init__(self, desk: Desk, stage: Stage) -> None:
        self._desk = desk
        self._sampler = Sampler(stage.lab, stage.fleet, stage.progress)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Samples come while this is open."""
        task = asyncio.ensure_future(self._sampler.run())
        try:
            yield
        finally:
            await ended(task)

    @asynccontextmanager
    async def serving(self, do: Do) -> AsyncIterator[None]:
        """Commands are taken while this is open, the last at its end."""
        task = asyncio.ensure_future(self._desk.serve(do))
        try:
            yield
        finally:
            await ended(task)
            self._desk.look(do)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; raises what it failed with.

    Raises:
        GeokvError: it could not go on before it was cancelled.
    """
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
