"""KV that comes from outside layer group by layer group, while its reader computes already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from geokv.errors import EngineError


class Interrupted(EngineError):
    """A step was given up while it waited for KV; nothing of it counts."""


class Arrival:
    """The front of a sequence, promised in ``len(layers)`` groups.

    Args:
        tokens: how many are promised.
        layers: of the running model complete once group 0, 1, … is here; ends with all.
        on_progress: called after each group, and at the end.
    """

    def __init__(self, tokens: int, layers: Sequence[int], on_progress: Callable[[], None]) -> None:
        if not layers or list(layers) != sorted(layers) or layers[0] < 0:
            raise EngineError(f"layer groups that end at {list(layers)} make no sense")
        self.tokens = tokens
        self.layers = tuple(layers)
        self._arrived = 0
        self._error: Interrupted | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._on_progress = on_progress

    @property
    def groups(self) -> int:
        """In how many parts it comes."""
        return len(self.layers)

    @property
    def begun(self) -> bool:
        """Whether the first layers can be computed."""
        return self._arrived > 0

    @property
    def complete(self) -> bool:
        """Whether all of it is here."""
        return self._arrived == self.groups

    def arrive(self) -> None:
        """The next group is in its blocks.

        Raises:
            EngineError: all had come, or it had failed.
        """
        if self.complete or self._error is not None:
            raise EngineError("a layer group came after the end")
        self._arrived += 1
        self._wake(None)

    def fail(self) -> None:
        """The rest will not come: who waits for it must compute without."""
        if not self.complete and self._error is None:
            self._error = Interrupted("promised KV did not come")
            self._wake(self._error)

    def interrupt(self) -> None:
        """Let a step that waits give up; nothing happens if none does."""
        if self._waiter is not None:
            self._wake(Interrupted("the step made way for other work"))

    async def wait(self, group: int) -> None:
        """Return when ``group`` is here. One waiter at a time.

        Raises:
            Interrupted: there is other work, or it will not come.
        """
        while self._arrived <= group:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _wake(self, error: Interrupted | None) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        self._on_progress()
