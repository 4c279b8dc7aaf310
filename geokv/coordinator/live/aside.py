"""Watching a measurement run: a thread beside it, as the run itself does one thing at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from geokv.coordinator.fleet import Fleet
from geokv.coordinator.live.desk import Desk, refuse
from geokv.coordinator.live.sampler import Sampler
from geokv.lab.build import Lab

_NO_COMMANDS = (
    "this is a measurement run, whose weather is fair: faults are made in drills "
    "(workload.kind: stream)"
)
_END_WITHIN_S = 10.0


class Aside:
    """Samples what a cell stands on, and refuses commands; use as a context manager.

    ``watch`` names what is looked at from then on, ``rest`` nothing.
    """

    def __init__(self, desk: Desk, tell: Callable[..., None]) -> None:
        self._desk = desk
        self._tell = tell
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live", daemon=True)
        self._serving: asyncio.Task[None] | None = None
        self._sampling: asyncio.Task[None] | None = None

    def __enter__(self) -> Aside:
        self._thread.start()
        self._call(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_WITHIN_S)
        self._loop.close()

    def watch(self, lab: Lab, fleet: Fleet) -> None:
        """Look at these until ``rest``."""
        self._call(self._sample(Sampler(lab, fleet, self._tell)))

    def rest(self) -> None:
        """Look at nothing; before a lab or its sites go away."""
        self._call(self._stop_sampling())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_END_WITHIN_S)

    async def _begin(self) -> None:
        self._serving = asyncio.create_task(self._desk.serve(refuse(_NO_COMMANDS)))

    async def _sample(self, sampler: Sampler) -> None:
        await self._stop_sampling()
        self._sampling = asyncio.create_task(sampler.run())

    async def _stop_sampling(self) -> None:
        await _cancelled(self._sampling)
        self._sampling = None

    async def _end(self) -> None:
        await self._stop_sampling()
        await _cancelled(self._serving)


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    """Raises what it ended with, if it was not this."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
