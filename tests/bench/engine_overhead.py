"""What scheduler, pool and prefix tree cost when nothing can be shared.

SGLang (NeurIPS 2024, §6.4) measured 0.2 s of 74.3 s for 100 ShareGPT requests. Here 100
requests with random tokens, whose lengths are spread like ShareGPT's and answers a
quarter as long, go through the whole loop. The model's forward pass and the choice of
tokens are taken out of the time it took; the rest is bookkeeping, with the hand-over
between the event loop and the device's thread.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from engine_line import Line
from engine_speed import SHAPE, make_model

from geokv.engine import (
    Engine,
    EngineLoop,
    Prompt,
    RealCompute,
    SamplingParams,
    SchedulerSettings,
)

REQUESTS = 100
#: Mean tokens of ShareGPT's prompts as the vLLM paper (SOSP 2023, §6.1) counts them, and
#: a quarter of its answers' 338.
PROMPT_TOKENS, ANSWER_TOKENS = 161, 84
BAR = 0.01


class Stopwatch:
    """Time by kind, each moment in the innermost call that was given a kind."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    def watch(self, owner: Any, name: str, kind: str) -> None:
        """Count what ``owner.name`` takes as ``kind``."""
        call: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(call)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._turn()
            self._open.append(kind)
            try:
                return call(*args, **kwargs)
            finally:
                self._turn()
                self._open.pop()

        setattr(owner, name, counted)

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            kind = self._open[-1]
            self.seconds[kind] = self.seconds.get(kind, 0.0) + now - self._since
        self._since = now


def measure_overhead() -> Iterator[Line]:
    """Bookkeeping as a share of run time."""
    yield from asyncio.run(_run())


async def _run() -> list[Line]:
    random = np.random.Generator(np.random.PCG64(0))
    engine = Engine(make_model(torch.bfloat16), 2500, RealCompute())
    loop = EngineLoop(engine, SchedulerSettings())
    watch = Stopwatch()
    watch.watch(engine.model, "forward", "model")
    watch.watch(loop, "_sample", "sampling")
    # Called while sampling, and bookkeeping all the same.
    for name in ("append", "fork", "close"):
        watch.watch(engine, name, "bookkeeping")
    watch.watch(loop, "_finish", "bookkeeping")
    prompts = [
        Prompt(
            random.integers(SHAPE.vocab_size, size=_length(random, PROMPT_TOKENS)).tolist(),
            b"bench",
            SamplingParams(max_tokens=_length(random, ANSWER_TOKENS)),
        )
        for _ in range(REQUESTS)
    ]
    start = time.perf_counter()
    answers = await asyncio.gather(*(_answer(loop, prompt) for prompt in prompts))
    took = time.perf_counter() - start
    stats = engine.stats()
    if stats.device_hit_tokens or sum(answers) != sum(p.params.max_tokens for p in prompts):
        raise SystemExit("prefixes were shared or answers cut short: nothing was measured")
    loop.check_integrity()
    await loop.aclose()
    await engine.compute.aclose()
    rest = took - watch.seconds["model"] - watch.seconds["sampling"]
    whole = f"of {took:.1f} s"
    return [
        Line(
            f"bookkeeping of {REQUESTS} requests, nothing shared",
            f"{rest:.2f} s",
            whole,
            rest / took,
            most=BAR,
            percent=True,
        ),
        Line(
            "choosing tokens",
            f"{watch.seconds['sampling']:.2f} s",
            whole,
            watch.seconds["sampling"] / took,
            percent=True,
        ),
    ]


def _length(random: np.random.Generator, mean: int) -> int:
    """Log-normal with a long tail, as in conversations; at most six times the mean."""
    spread = 1.0
    length = random.lognormal(np.log(mean) - spread**2 / 2, spread)
    return int(min(max(length, 4), 6 * mean))


async def _answer(loop: EngineLoop, prompt: Prompt) -> int:
    return len([event async for event in loop.submit(prompt)])
