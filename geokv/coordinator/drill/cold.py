"""What a cold engine answers: nothing cached, nothing shared, one prompt at a time.

It runs in a process of its own after the drill, without charge, so it costs the drill no time.
What a site answered is compared with this (INV-1).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

from geokv.engine.compute import RealCompute
from geokv.engine.engine import Engine
from geokv.engine.loop import EngineLoop
from geokv.engine.request import Prompt
from geokv.engine.sampling import SamplingParams
from geokv.engine.scheduler import SchedulerSettings
from geokv.engine.tokenizer import load_tokenizer
from geokv.errors import RunError
from geokv.site.process import build_model
from geokv.site.settings import SiteSettings

_DEADLINE_S = 3600.0


@dataclass(frozen=True)
class ColdQuestion:
    """One prompt, and how long an answer is asked for."""

    prompt: str
    tokens: list[int]
    max_tokens: int


class ColdAnswer(NamedTuple):
    """The greedy answer of a cold engine."""

    prompt: str
    output_ids: list[int]
    text: str


def run_cold(settings: SiteSettings, orders: Connection) -> None:
    """Process entry: take a list of ``ColdQuestion``, give a list of ``ColdAnswer``."""
    try:
        questions = orders.recv()
    except EOFError:
        return
    orders.send(asyncio.run(_answer_all(settings, questions)))


async def _answer_all(settings: SiteSettings, questions: list[ColdQuestion]) -> list[ColdAnswer]:
    model = build_model(settings)
    tokenizer = load_tokenizer(settings.model)
    longest = max(len(one.tokens) + one.max_tokens for one in questions)
    blocks = -(-longest // settings.block_tokens) + 2
    answers = []
    compute = RealCompute()
    loop = EngineLoop(
        Engine(model, blocks, compute, settings.block_tokens), SchedulerSettings(), tokenizer
    )
    try:
        for one in questions:
            params = SamplingParams(max_tokens=one.max_tokens, ignore_eos=True)
            request = loop.submit(Prompt(one.tokens, b"", params, reuse=False))
            events = [event async for event in request]
            ids = [event.token for event in events]
            answers.append(ColdAnswer(one.prompt, ids, "".join(event.text for event in events)))
    finally:
        await loop.aclose()
        await compute.aclose()
    return answers


def ask_cold(orders: Connection, questions: list[ColdQuestion]) -> list[ColdAnswer]:
    """Have a process that runs ``run_cold`` answer; waits for it.

    Raises:
        RunError: it ended without an answer.
    """
    try:
        orders.send(questions)
        if orders.poll(_DEADLINE_S):
            answers: list[ColdAnswer] = orders.recv()
            return answers
    except (EOFError, OSError) as error:
        raise RunError(f"the cold engine ended: {error}", "see log.txt") from None
    raise RunError("the cold engine gave no answer")
