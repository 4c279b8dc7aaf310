"""A cold engine as a process; see ``cold.py``."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection

from geokv.coordinator.drill.cold import ColdAnswer, ColdQuestion
from geokv.engine.compute import RealCompute
from geokv.engine.engine import Engine
from geokv.engine.loop import EngineLoop
from geokv.engine.request import Prompt
from geokv.engine.sampling import SamplingParams
from geokv.engine.scheduler import SchedulerSettings
from geokv.engine.tokenizer import load_tokenizer
from geokv.site.process import build_model
from geokv.site.settings import SiteSettings


def serve(settings: SiteSettings, orders: Connection) -> None:
    """Take a list of ``ColdQuestion`` from the pipe, give a list of ``ColdAnswer``."""
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
