"""Driving an engine by hand: one sequence at a time, without a loop."""

from __future__ import annotations

import random
from typing import Any

import torch

from geokv.engine import Engine, Sequence, Slice, StepLoad
from geokv.engine.prefix import PrefixNode
from geokv.engine.room import BlockRoom

ROOT = b"tenant"


class Inline:
    """A compute that runs work at once; the clock is no part of these tests."""

    late_ns = 0

    def __init__(self) -> None:
        self.loads: list[StepLoad] = []

    async def step(self, work: Any, load: StepLoad, follows: bool = False) -> Any:
        self.loads.append(load)
        return work()

    async def copy(self, n_bytes: int, operations: int, direction: str) -> None:
        return

    async def aclose(self) -> None:
        return


def prompt(length: int, seed: int = 0, vocab: int = 64) -> list[int]:
    """Seeded token ids."""
    return random.Random(seed).choices(range(vocab), k=length)


def available_blocks(engine: Engine) -> int:
    """Free ones, and cached ones that nobody uses."""
    return BlockRoom(engine.pool, engine.tree).available


def path_tokens(node: PrefixNode) -> list[int]:
    """From the start of the prompt to the end of the node's block."""
    return [token for each in node.path() for token in each.tokens]


async def compute(engine: Engine, seq: Sequence, chunk: int = 10_000) -> torch.Tensor:
    """All tokens that are left, ``chunk`` per step; float32 ``[vocab]`` after the last."""
    logits = torch.empty(0)
    while seq.remaining_tokens:
        logits = await engine.step([Slice(seq, min(chunk, seq.remaining_tokens))])
    return logits[0]


async def decode(engine: Engine, seq: Sequence, token: int) -> torch.Tensor:
    """One more token, and the logits after it."""
    engine.append(seq, token)
    return await compute(engine, seq)


async def answer(
    engine: Engine,
    seq: Sequence,
    count: int = 12,
    chunk: int = 10_000,
    logits: torch.Tensor | None = None,
) -> list[int]:
    """The greedy answer, from ``logits`` on if the prompt is computed already."""
    if logits is None:
        logits = await compute(engine, seq, chunk)
    tokens = [int(logits.argmax())]
    while len(tokens) < count:
        tokens.append(int((await decode(engine, seq, tokens[-1])).argmax()))
    return tokens
