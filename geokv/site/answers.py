"""All answers of one HTTP request, computed side by side."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from geokv.engine.generation import TokenEvent
from geokv.errors import RunError
from geokv.site.record import RequestRecord
from geokv.site.worker import Ask, Worker

FAR_BEHIND = 65_536
"""Tokens a client may be behind. What is generated waits here and not in the worker, so
that a slow reader holds no blocks; this bounds what it holds instead (some 10 MB)."""


class Answers:
    """An async iterator of ``(index, event)``; ``index`` counts choices as OpenAI does.

    ::

        async with Answers(worker, asks) as answers:
            async for index, event in answers:
                ...

    Leaving ends what is still being computed. Iterating raises the first error of any
    prompt, once everything that came before it has been taken.
    """

    def __init__(self, worker: Worker, asks: list[Ask]) -> None:
        self.prompt_tokens = sum(len(ask.tokens) for ask in asks)
        self.completion_tokens = 0
        self._worker = worker
        self._asks = asks
        self._records: list[RequestRecord] = []
        self._events: asyncio.Queue[tuple[int, TokenEvent] | Exception | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._left = len(asks)

    async def __aenter__(self) -> Answers:
        spawn = asyncio.get_running_loop().create_task
        self._tasks = [spawn(self._pump(i, ask)) for i, ask in enumerate(self._asks)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> tuple[int, TokenEvent]:
        found = await self._events.get()
        if found is None:
            raise StopAsyncIteration
        if isinstance(found, Exception):
            raise found
        self.completion_tokens += 1
        return found

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed; known when all answers have ended."""
        return sum(record.cached_tokens for record in self._records)

    async def _pump(self, number: int, ask: Ask) -> None:
        first = number * ask.params.n
        try:
            async with aclosing(self._worker.answer(ask)) as events:
                async for event in events:
                    if self._events.qsize() >= FAR_BEHIND:
                        raise RunError(
                            f"the client is {FAR_BEHIND} tokens behind", "read faster, or ask less"
                        )
                    self._events.put_nowait((first + event.choice, event))
            self._records.append(self._worker.records[ask.request_id])
        except Exception as error:
            # Whoever iterates raises it, whatever it is.
            self._events.put_nowait(error)
            return
        self._left -= 1
        if not self._left:
            self._events.put_nowait(None)
