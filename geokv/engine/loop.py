"""The loop of one worker: admit, compute a step, sample, hand out, again.

::

    loop = EngineLoop(engine, SchedulerSettings(), tokenizer)
    async for event in loop.submit(Prompt(tokens, root, SamplingParams(max_tokens=8))):
        ...

Longer than most: every way in and every way out of a request, which may come between any two steps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

import torch

from geokv.clock import now_ns
from geokv.engine.arrival import Interrupted
from geokv.engine.engine import Engine
from geokv.engine.generation import Generation
from geokv.engine.order import Order
from geokv.engine.request import Answer, Prompt, Request, late
from geokv.engine.scheduler import Scheduler, SchedulerSettings
from geokv.engine.sequence import Sequence, Slice
from geokv.engine.tokenizer import Tokenizer
from geokv.errors import ComputeError, EngineError, GeokvError, Overloaded, RunError
from geokv.units import NS_PER_S

Step = list[tuple[Answer, Slice]]

_RECENT = 32
"""Finished requests that say how fast the queue moves."""


@dataclass(frozen=True)
class LoopStats:
    """Answers by place, and counters since the loop was made."""

    waiting: int
    loading: int
    running: int
    preemptions: int
    refused: int
    finished: int


class EngineLoop:
    """Continuous batching on an engine. It runs while there is work, in the caller's event loop.

    Args:
        tokenizer: for text, stop strings and end tokens; None leaves tokens alone.
        order: the rule to use instead of the one ``settings`` names.
    """

    def __init__(
        self,
        engine: Engine,
        settings: SchedulerSettings,
        tokenizer: Tokenizer | None = None,
        order: Order | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._scheduler = Scheduler(engine, settings, order)
        self._tokenizer = tokenizer
        self._serial = 0
        self._open: set[Request] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._preemptions = self._refused = self._finished = 0
        self._recent: deque[int] = deque(maxlen=_RECENT)
        engine.on_room = self._room_changed
        engine.on_progress = self._progressed

    def submit(self, prompt: Prompt) -> Request:
        """Queue a prompt; its events come from iterating over the request.

        Raises:
            EngineError: it could never be computed here.
            Overloaded: as many wait as may.
        """
        self.engine.check_prompt(prompt.tokens)
        if prompt.params.n > self.settings.max_running:
            raise EngineError(
                f"n is {prompt.params.n}, this worker computes {self.settings.max_running} answers"
            )
        if len(self._scheduler.waiting) >= self.settings.max_waiting and not self._at_once():
            self._refused += 1
            waiting = len(self._scheduler.waiting)
            raise Overloaded(f"{waiting} requests are waiting already", self._retry_after_s())
        request = Request(prompt, self.engine.lookup, self._fail)
        answer = self._answer(request, 0)
        answer.places = prompt.params.n
        self._open.add(request)
        self._scheduler.enqueue(answer)
        self._scheduler.make_way()
        self._start()
        return request

    def stats(self) -> LoopStats:
        """Where the answers are, and counters."""
        return LoopStats(
            waiting=len(self._scheduler.waiting),
            loading=len(self._scheduler.loading),
            running=len(self._scheduler.running),
            preemptions=self._preemptions,
            refused=self._refused,
            finished=self._finished,
        )

    def check_integrity(self) -> None:
        """Engine and scheduler account for everything (INV-5). Raises EngineError."""
        self.engine.check_integrity()
        self._scheduler.check_integrity()

    async def aclose(self) -> None:
        """End every request and the loop; the engine stays."""
        loading = [request.loading for request in self._open if request.loading is not None]
        for request in list(self._open):
            self._fail(request, RunError("the worker is shutting down"))
        await asyncio.gather(*loading, return_exceptions=True)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- the loop --------------------------------------------------------------

    def _start(self) -> None:
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        follows = False
        while not self._scheduler.idle:
            self._wake.clear()
            self._expire()
            self._admit()
            self._scheduler.hold_arriving()
            step, preempted = self._scheduler.plan()
            self._preemptions += len(preempted)
            if not step:
                follows = False
                await self._until_woken()
                continue
            await self._step(step, follows)
            follows = True

    async def _until_woken(self) -> None:
        """Something to compute, or the next deadline, whichever comes first."""
        deadlines = [request.prompt.deadline_ns for request in self._open]
        known = [deadline for deadline in deadlines if deadline is not None]
        try:
            async with asyncio.timeout_at(min(known) / NS_PER_S if known else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _step(self, step: Step, follows: bool) -> None:
        now = now_ns()
        for answer, _ in step:
            answer.request.stamps.scheduled_ns = answer.request.stamps.scheduled_ns or now
        last = [answer for answer, part in step if part.is_last]
        try:
            logits = await self.engine.step([part for _, part in step], follows)
        except Interrupted:
            return
        except Exception as error:
            # Nobody in it can be computed; who is not in it goes on.
            for answer, _ in step:
                self._fail(answer.request, _as_compute_error(error))
            return
        if last:
            self._sample(last, logits)

    def _sample(self, answers: Seq[Answer], logits: torch.Tensor) -> None:
        """One token for each answer from its row of float32 ``[rows, vocab]``."""
        now = now_ns()
        sound = torch.isfinite(logits).all(dim=-1).tolist()
        best = logits.argmax(dim=-1).tolist()
        for row, answer in enumerate(answers):
            request = answer.request
            if request.done:
                continue
            if not sound[row]:
                self._distrust(request)
                continue
            if not request.stamps.prefilled_ns:
                request.stamps.prefilled_ns = now
                # Its own memory: a row would keep the whole step's logits for as long as it.
                request.first_logits = logits[row].clone()
                if request.prompt.reuse and answer.seq is not None:
                    self.engine.publish(answer.seq)
            for one in self._forked(answer):
                self._take(one, logits[row], best[row])

    def _forked(self, answer: Answer) -> list[Answer]:
        """The answer, and its twins when it has just come to the end of the prompt."""
        request = answer.request
        answers = [answer]
        if answer.places > 1:
            answer.places = 1
            assert answer.seq is not None
            for choice in range(1, request.prompt.params.n):
                twin = self._answer(request, choice)
                twin.seq = self.engine.fork(answer.seq)
                self._scheduler.run(twin)
                answers.append(twin)
        return answers

    def _take(self, answer: Answer, logits: torch.Tensor, best: int) -> None:
        assert answer.seq is not None
        event = answer.generation.take(logits, best)
        if event.finish is None:
            self.engine.append(answer.seq, event.token)
        answer.request.emit(event)
        if event.finish is not None:
            self._finish(answer)

    # -- the ends of a request -------------------------------------------------

    def _finish(self, answer: Answer) -> None:
        request, prompt = answer.request, answer.request.prompt
        assert answer.seq is not None
        if prompt.on_done is not None and answer.generation.choice == 0:
            prompt.on_done(answer.seq)
        self._scheduler.remove(answer)
        self.engine.close(answer.seq, keep=prompt.reuse)
        if all(one.generation.finish for one in request.answers):
            self._open.discard(request)
            self._finished += 1
            request.end()
            self._recent.append(request.stamps.finished_ns)

    def _fail(self, request: Request, error: Exception, keep: bool = True) -> None:
        """End a request; its blocks are free once neither device nor loader touches them."""
        if request.done:
            return
        request.end(error)
        for answer in request.answers:
            self._scheduler.remove(answer)
            loading = request.loading is not None and not request.loading.done()
            if answer.seq is not None and not loading:
                self.engine.close(answer.seq, keep=keep and request.prompt.reuse)
        if request.loading is not None:
            request.loading.cancel()
        self._open.discard(request)
        self._wake.set()

    def _distrust(self, request: Request) -> None:
        """End a request whose numbers are damaged, and forget what may be the cause."""
        self._fail(
            request,
            ComputeError(
                "the model's logits are not finite: weights or KV are damaged",
                "if it happens again, check the model's weights",
            ),
            keep=False,
        )
        # Which block it came from cannot be told, and what was computed on it is no better.
        self.engine.flush(request.prompt.root)

    def _expire(self) -> None:
        now = now_ns()
        for request in [one for one in self._open if one.is_late(now)]:
            self._fail(request, late())

    # -- admission -------------------------------------------------------------

    def _admit(self) -> None:
        for answer in self._scheduler.admit():
            request, seq = answer.request, answer.seq
            assert seq is not None
            if request.stamps.admitted_ns:
                continue
            request.stamps.admitted_ns = request.stamps.loaded_ns = now_ns()
            request.device_tokens = request.cached_tokens = seq.device_tokens
            if request.prompt.load is not None:
                request.loading = asyncio.ensure_future(request.prompt.load(seq))
                # A callback, not a finally: a task cancelled before it began runs neither.
                request.loading.add_done_callback(partial(self._loaded, answer, seq))

    def _loaded(self, answer: Answer, seq: Sequence, loading: asyncio.Future[None]) -> None:
        """The request's own loader has ended: run what it left, or clean up behind it."""
        request = answer.request
        self.engine.rollback(seq)
        error = None if loading.cancelled() else loading.exception()
        if isinstance(error, Exception):
            self._fail(request, error)
        elif loading.cancelled():
            self._fail(request, RunError("loading was cancelled"))
        if request.done:
            self.engine.close(seq, keep=request.prompt.reuse)
        else:
            request.stamps.loaded_ns = now_ns()
            request.cached_tokens = seq.cached_tokens
            self._scheduler.run(answer)
            self._scheduler.make_way()
        self._wake.set()

    def _answer(self, request: Request, choice: int) -> Answer:
        prompt = request.prompt
        if choice == 0:
            self._serial += 1
            serial = (self._serial, 0)
        else:
            serial = (request.answers[0].serial[0], choice)
        room = self.engine.limit_tokens - len(prompt.tokens)
        answer = Answer(request, serial, Generation(prompt.params, self._tokenizer, room, choice))
        request.answers.append(answer)
        return answer

    def _at_once(self) -> bool:
        """Whether a request would not have to wait at all (``max_waiting`` may be 0)."""
        return self._scheduler.idle

    def _room_changed(self) -> None:
        self._scheduler.room_changed()
        self._wake.set()

    def _progressed(self) -> None:
        self._wake.set()

    def _retry_after_s(self) -> int:
        """About when those that wait now have been served, in 1 … 60 s."""
        if len(self._recent) < 2:
            return 1
        interval_s = (self._recent[-1] - self._recent[0]) / (len(self._recent) - 1) / NS_PER_S
        return max(1, min(60, round(interval_s * len(self._scheduler.waiting))))


def _as_compute_error(error: Exception) -> GeokvError:
    if isinstance(error, GeokvError):
        return error
    return ComputeError(f"a step could not be computed ({type(error).__name__}: {error})")
