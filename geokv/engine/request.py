"""A request in the engine's loop: what was asked, where it stands, what came out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import torch

from geokv.clock import now_ns
from geokv.engine.arrival import Arrival
from geokv.engine.generation import Generation, TokenEvent
from geokv.engine.sampling import SamplingParams
from geokv.engine.sequence import Sequence
from geokv.errors import RunError
from geokv.units import NS_PER_S


@dataclass(frozen=True)
class Prompt:
    """What to compute.

    Args:
        root: opaque namespace of the prefix tree.
        deadline_ns: on ``geokv.clock.now_ns``; None is never.
        reuse: False ignores what is cached and caches nothing.
        load: awaited once, when the request has its blocks: reserves and fills them from
            outside. Computing waits for its end, or begins behind what it promises
            (:meth:`Sequences.expect`) when the device has nothing else to do.
        on_done: takes the computed sequence of the first answer before it is closed.
    """

    tokens: list[int]
    root: bytes
    params: SamplingParams
    deadline_ns: int | None = None
    reuse: bool = True
    load: Callable[[Sequence], Awaitable[None]] | None = None
    on_done: Callable[[Sequence], None] | None = None


@dataclass
class Stamps:
    """Monotonic ns; 0 where it did not come to that."""

    arrived_ns: int = 0
    #: It got blocks and a place.
    admitted_ns: int = 0
    loaded_ns: int = 0
    #: Its first step began.
    scheduled_ns: int = 0
    #: Its first logits were there.
    prefilled_ns: int = 0
    finished_ns: int = 0


@dataclass(eq=False)
class Answer:
    """One of a request's ``n`` answers: what the scheduler moves about."""

    request: Request
    #: Place in the order of arrival: the request's, then the answer's.
    serial: tuple[int, int]
    generation: Generation
    seq: Sequence | None = None
    #: Of the batch: all ``n`` until the others are forked off.
    places: int = 1
    preemptions: int = 0
    #: Left out of steps for now: what it reads is still coming in.
    held: bool = False

    @property
    def arrival(self) -> Arrival | None:
        """KV that it was promised and that is not all here."""
        return self.seq.arrival if self.seq is not None else None

    @property
    def is_arriving(self) -> bool:
        """Whether KV that it was promised is not all here."""
        return self.arrival is not None

    @property
    def tokens(self) -> list[int]:
        """All its tokens so far, the prompt's first."""
        return self.seq.tokens if self.seq is not None else self.request.prompt.tokens

    def cached_tokens(self) -> int:
        """Tokens of it that are cached on the device now."""
        prompt = self.request.prompt
        return self.request.lookup(self.tokens, prompt.root) if prompt.reuse else 0


class Request:
    """A submitted prompt: an async iterator over the events of all its answers.

    Made by :meth:`EngineLoop.submit`. Stop listening with :meth:`cancel`; what it
    holds is freed as soon as the device lets go of it.
    """

    def __init__(
        self,
        prompt: Prompt,
        lookup: Callable[[list[int], bytes], int],
        on_cancel: Callable[[Request, Exception], None],
    ) -> None:
        self.prompt = prompt
        self.lookup = lookup
        self.stamps = Stamps(arrived_ns=now_ns())
        self.answers: list[Answer] = []
        self.error: Exception | None = None
        #: float32 ``[vocab]`` after the prompt.
        self.first_logits: torch.Tensor | None = None
        #: Prompt tokens that were not computed here, of them from this worker's device.
        self.cached_tokens = 0
        self.device_tokens = 0
        self.loading: asyncio.Future[None] | None = None
        self._on_cancel = on_cancel
        self._events: deque[TokenEvent | None] = deque()
        self._more = asyncio.Event()

    @property
    def done(self) -> bool:
        """Whether nothing more will come of it."""
        return self.stamps.finished_ns > 0

    @property
    def preemptions(self) -> int:
        """How often one of its answers lost its blocks."""
        return sum(answer.preemptions for answer in self.answers)

    def is_late(self, at_ns: int) -> bool:
        """Whether its deadline has passed."""
        return self.prompt.deadline_ns is not None and at_ns >= self.prompt.deadline_ns

    def __aiter__(self) -> Request:
        return self

    async def __anext__(self) -> TokenEvent:
        """The next token of any answer.

        Raises:
            RunError: the deadline passed.
            Exception: what ended the request, as it was raised.
        """
        if not self._events:
            deadline_ns = self.prompt.deadline_ns
            try:
                async with asyncio.timeout_at(deadline_ns / NS_PER_S if deadline_ns else None):
                    await self._more.wait()
            except TimeoutError:
                self.cancel(late())
        event = self._events.popleft()
        if not self._events:
            self._more.clear()
        if event is not None:
            return event
        self._put(None)
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    def cancel(self, error: Exception | None = None) -> None:
        """Nobody listens any more; safe at any time.

        Args:
            error: what iterating over the request raises from now on.
        """
        if not self.done:
            self._on_cancel(self, error or RunError("the request was cancelled"))

    def emit(self, event: TokenEvent) -> None:
        """Hand one token to whoever listens. For the loop."""
        self._put(event)

    def end(self, error: Exception | None = None) -> None:
        """Nothing more will come. For the loop."""
        if not self.done:
            self.error = error
            self.stamps.finished_ns = now_ns()
            self._put(None)

    def _put(self, event: TokenEvent | None) -> None:
        self._events.append(event)
        self._more.set()


def late() -> RunError:
    """What a request gets whose deadline has passed."""
    return RunError(
        "the request's deadline has passed", "send a shorter prompt or a longer deadline"
    )
