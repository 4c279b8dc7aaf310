"""Computing on KV that is still coming in, layer group by layer group."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_steps import ROOT, Inline, answer, compute, prompt

from geokv.engine import (
    ChargedCompute,
    Engine,
    EngineLoop,
    LlamaModel,
    Prompt,
    SamplingParams,
    SchedulerSettings,
    Sequence,
    Slice,
)
from geokv.engine import compute as compute_module
from geokv.engine.arrival import Arrival, Interrupted
from geokv.engine.compute import Stage, StepLoad
from geokv.errors import EngineError

TOKENS = prompt(40)
LAYERS = (0, 1, 2, 3)
"""Four groups over the three layers of the small model; the first brings no real layer."""


class Staged(Inline):
    """Runs stages as soon as they are ready."""

    def __init__(self) -> None:
        super().__init__()
        self.reached: list[int] = []

    async def step(self, work: Any, load: StepLoad, follows: bool = False) -> Any:
        await asyncio.sleep(0)
        return await super().step(work, load, follows)

    async def stages(self, stages: list[Stage], load: StepLoad) -> None:
        self.loads.append(load)
        for number, stage in enumerate(stages):
            await stage.ready()
            self.reached.append(number)
            stage.work()


@pytest.fixture
async def payload(small: LlamaModel) -> torch.Tensor:
    """KV of the first 32 tokens, ``[3, 2, 32, 2, 8]``."""
    source = Engine(small, 16, Inline(), 4)
    seq = source.open(TOKENS, ROOT)
    await compute(source, seq)
    out = torch.empty(3, 2, 32, 2, 8)
    source.pool.gather(seq.blocks[:8], out)
    return out


async def expected(small: LlamaModel, tokens: list[int] = TOKENS) -> list[int]:
    engine = Engine(small, 64, Inline(), 4)
    return await answer(engine, engine.open(tokens, ROOT), 8)


def fill(engine: Engine, blocks: list[int], payload: torch.Tensor, group: int) -> None:
    """Put the layers that come with ``group`` into their blocks."""
    part = slice(LAYERS[group - 1] if group else 0, LAYERS[group])
    if part.start < part.stop:
        engine.pool.scatter(blocks, payload[part], part)


def first_group(engine: Engine, seq: Sequence, payload: torch.Tensor) -> list[int]:
    """Promise the first 32 tokens and bring one group of them; their blocks."""
    blocks = engine.reserve(seq, 32)
    arrival = engine.expect(seq, LAYERS)
    fill(engine, blocks, payload, 0)
    arrival.arrive()
    return blocks


async def tokens_of(request: Any) -> list[int]:
    return [event.token async for event in request]


def at_rest(engine: Engine, loop: EngineLoop) -> None:
    loop.check_integrity()
    assert (engine.stats().blocks_pinned, engine.stats().open_sequences) == (0, 0)


async def test_a_step_begins_before_the_last_layers_are_here(
    small: LlamaModel, payload: torch.Tensor
) -> None:
    engine = Engine(small, 64, Staged(), 4)
    # Whatever lay in the blocks before must not matter.
    engine.pool.tensor.fill_(7.0)
    seq = engine.open(TOKENS, ROOT)
    blocks = engine.reserve(seq, 32)
    with pytest.raises(EngineError, match="32 reserved tokens"):
        await engine.step([Slice(seq, 8)])
    arrival = engine.expect(seq, LAYERS)
    assert (seq.computed_tokens, seq.remaining_tokens) == (0, 8)
    step = asyncio.create_task(engine.step([Slice(seq, 8)]))
    for group in range(4):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert engine.compute.reached == list(range(group))  # type: ignore[attr-defined]
        fill(engine, blocks, payload, group)
        arrival.arrive()
    logits = await step
    assert (seq.computed_tokens, seq.cached_tokens, seq.reserved_tokens) == (40, 32, 0)
    assert await answer(engine, seq, 8, logits=logits[0]) == await expected(small)
    engine.close(seq)
    engine.check_integrity()


async def test_the_loop_overlaps_when_it_has_nothing_else_to_do(
    small: LlamaModel, payload: torch.Tensor
) -> None:
    engine = Engine(small, 64, Staged(), 4)
    loop = EngineLoop(engine, SchedulerSettings())
    begun: list[list[int]] = []

    async def load(seq: Sequence) -> None:
        blocks = engine.reserve(seq, 32)
        arrival = engine.expect(seq, LAYERS)
        for group in range(4):
            await asyncio.sleep(0.001)
            begun.append(list(engine.compute.reached))  # type: ignore[attr-defined]
            fill(engine, blocks, payload, group)
            arrival.arrive()

    request = loop.submit(Prompt(TOKENS, ROOT, SamplingParams(max_tokens=8), load=load))
    assert await tokens_of(request) == await expected(small)
    assert begun == [[], [0], [0, 1], [0, 1, 2]]
    assert request.cached_tokens == 32
    at_rest(engine, loop)


async def test_a_step_that_waits_makes_way_for_other_work(
    small: LlamaModel, payload: torch.Tensor
) -> None:
    engine = Engine(small, 64, Staged(), 4)
    loop = EngineLoop(engine, SchedulerSettings())
    more = asyncio.Event()
    # Before the model stands in the middle of a step: it computes one batch at a time.
    answers = [await expected(small), await expected(small, prompt(9, 1))]

    async def load(seq: Sequence) -> None:
        blocks = engine.reserve(seq, 32)
        arrival = engine.expect(seq, LAYERS)
        for group in range(4):
            if group == 2:
                await more.wait()
            fill(engine, blocks, payload, group)
            arrival.arrive()

    slow = loop.submit(Prompt(TOKENS, ROOT, SamplingParams(max_tokens=8), load=load))
    async with asyncio.timeout(10):
        while engine.compute.reached != [0, 1]:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
    # The link stands still, the device does not.
    other = Prompt(prompt(9, 1), ROOT, SamplingParams(max_tokens=8))
    assert await tokens_of(loop.submit(other)) == answers[1]
    more.set()
    assert await tokens_of(slow) == answers[0]
    at_rest(engine, loop)


async def test_nobody_takes_the_blocks_of_what_is_still_coming_in(
    small: LlamaModel, payload: torch.Tensor
) -> None:
    # Room for both prompts, and for the answer of one only.
    engine = Engine(small, 13, Staged(), 4)
    loop = EngineLoop(engine, SchedulerSettings())
    more = asyncio.Event()

    async def load(seq: Sequence) -> None:
        blocks = engine.reserve(seq, 32)
        arrival = engine.expect(seq, LAYERS)
        for group in range(4):
            fill(engine, blocks, payload, group)
            arrival.arrive()
            await more.wait()

    first = prompt(8, 1)
    params = SamplingParams(max_tokens=8)
    grows = asyncio.create_task(tokens_of(loop.submit(Prompt(first, ROOT, params))))
    late = loop.submit(Prompt(TOKENS, ROOT, params, load=load))
    async with asyncio.timeout(10):
        while not loop.stats().preemptions:
            await asyncio.sleep(0.001)
    assert late.preemptions == 0
    more.set()
    assert await tokens_of(late) == await expected(small)
    assert await grows == await expected(small, first)
    assert late.cached_tokens == 32
    at_rest(engine, loop)


@pytest.mark.parametrize("kept", [0, 16])
async def test_what_does_not_come_is_computed(
    small: LlamaModel, payload: torch.Tensor, kept: int
) -> None:
    engine = Engine(small, 64, Staged(), 4)
    loop = EngineLoop(engine, SchedulerSettings())

    async def load(seq: Sequence) -> None:
        blocks = first_group(engine, seq, payload)
        await asyncio.sleep(0.002)
        engine.pool.scatter(blocks[:4], payload[:, :, :16])
        engine.rollback(seq, keep=kept)

    request = loop.submit(Prompt(TOKENS, ROOT, SamplingParams(max_tokens=8), load=load))
    assert await tokens_of(request) == await expected(small)
    assert request.cached_tokens == kept
    at_rest(engine, loop)


async def test_cancelling_in_the_middle_leaks_nothing_and_caches_nothing(
    small: LlamaModel, payload: torch.Tensor
) -> None:
    engine = Engine(small, 64, Staged(), 4)
    loop = EngineLoop(engine, SchedulerSettings())

    async def load(seq: Sequence) -> None:
        first_group(engine, seq, payload)
        await asyncio.sleep(60)

    request = loop.submit(Prompt(TOKENS, ROOT, SamplingParams(max_tokens=8), load=load))
    await asyncio.sleep(0.002)
    request.cancel()
    await asyncio.sleep(0.002)
    assert engine.lookup(TOKENS, ROOT) == 0
    at_rest(engine, loop)


@pytest.mark.parametrize(
    ("gap_ns", "took_ns"),
    [
        # Nothing to wait for: as if in one piece.
        (0, 4 * 250),
        # The wire is slower: its time and the last share.
        (1_000, 4 * 1_000 + 250),
        # Nearly as fast: each part waits for its group only.
        (251, 4 * 251 + 250),
        # Only the first is waited for.
        (249, 249 + 4 * 250),
    ],
)
async def test_a_charged_step_takes_the_longer_of_wire_and_compute_and_one_share(
    monkeypatch: pytest.MonkeyPatch, gap_ns: int, took_ns: int
) -> None:
    clock = SimpleNamespace(now=5_000)

    async def wait_until_ns(deadline_ns: int) -> None:
        clock.now = max(clock.now, deadline_ns)

    async def ready(number: int) -> None:
        clock.now = max(clock.now, 5_000 + gap_ns * (number + 1))

    monkeypatch.setattr(compute_module, "now_ns", lambda: clock.now)
    monkeypatch.setattr(compute_module, "wait_until_ns", wait_until_ns)
    charged = ChargedCompute(SimpleNamespace(step_s=lambda *_: 1e-6))  # type: ignore[arg-type]
    stages = [Stage(lambda n=n: ready(n), lambda: None) for n in range(4)]
    await charged.stages(stages, StepLoad(((512, 4096),), (), 1))
    assert clock.now - 5_000 == took_ns
    assert charged.late_ns == 0


async def test_promises_that_make_no_sense_are_refused(small: LlamaModel) -> None:
    engine = Engine(small, 64, Staged(), 4)
    seq = engine.open(TOKENS, ROOT)
    with pytest.raises(EngineError, match="only what is reserved"):
        engine.expect(seq, LAYERS)
    engine.reserve(seq, 32)
    for layers in ((), (2, 1), (-1, 3)):
        with pytest.raises(EngineError, match="make no sense"):
            engine.expect(seq, layers)
    arrival = engine.expect(seq, LAYERS)
    with pytest.raises(EngineError, match="only once"):
        engine.expect(seq, LAYERS)
    with pytest.raises(EngineError, match="cannot pre-empt"):
        engine.preempt(seq)
    for keep in (3, 36, -4):
        with pytest.raises(EngineError, match="cannot be kept"):
            engine.rollback(seq, keep)
    engine.rollback(seq)
    with pytest.raises(EngineError, match="after the end"):
        arrival.arrive()
    with pytest.raises(Interrupted, match="did not come"):
        await Arrival.wait(arrival, 0)
    engine.close(seq)
    engine.check_integrity()
