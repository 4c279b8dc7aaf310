"""Answers of several prompts on their way to one client, without a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from site_processes import ACME

from geokv.engine.generation import TokenEvent
from geokv.engine.sampling import SamplingParams
from geokv.errors import EngineError, RunError
from geokv.site import answers as module
from geokv.site.answers import Answers
from geokv.site.record import RequestRecord
from geokv.site.worker import Ask


class Script:
    """A worker that answers as told: per request tokens, then perhaps an error."""

    def __init__(self, tokens: int, error: Exception | None = None, pause_s: float = 0.0) -> None:
        self.records: dict[str, RequestRecord] = {}
        self.ended: list[str] = []
        self._tokens, self._error, self._pause_s = tokens, error, pause_s

    async def answer(self, ask: Ask) -> AsyncGenerator[TokenEvent, None]:
        self.records[ask.request_id] = RequestRecord(
            ask.request_id, "t", len(ask.tokens), 0, cached_tokens=3
        )
        try:
            for index in range(self._tokens):
                for choice in range(ask.params.n):
                    yield TokenEvent(index, index, "x", None, choice)
                await asyncio.sleep(self._pause_s)
            if self._error is not None and ask.request_id == "1":
                raise self._error
        finally:
            self.ended.append(ask.request_id)


def asks(count: int, n: int = 1) -> list[Ask]:
    params = SamplingParams(n=n)
    return [Ask(str(i), ACME, [1] * 10, params, 0) for i in range(count)]


def worker(*args: Any, **more: Any) -> Any:
    return Script(*args, **more)


async def test_every_choice_has_its_own_index_and_prompts_go_side_by_side() -> None:
    async with Answers(worker(2), asks(2, n=3)) as answers:
        seen = [(index, event.index) async for index, event in answers]
    assert sorted(seen) == [(i, j) for i in range(6) for j in range(2)]
    assert {index for index, _ in seen[:6]} == set(range(6))
    assert answers.prompt_tokens == 20
    assert answers.completion_tokens == 12
    assert answers.cached_tokens == 6


@pytest.mark.parametrize("error", [EngineError("no"), ValueError("a fault of ours")])
async def test_error_of_one_prompt_comes_after_its_tokens_and_ends_the_others(
    error: Exception,
) -> None:
    script = worker(3, error, pause_s=0.001)
    seen = 0
    with pytest.raises(type(error)):
        async with Answers(script, asks(3)) as answers:
            async for _ in answers:
                seen += 1
    assert seen >= 3
    assert sorted(script.ended) == ["0", "1", "2"]


async def test_leaving_ends_what_is_still_computed() -> None:
    script = worker(1000, pause_s=10.0)
    async with Answers(script, asks(2)) as answers:
        await anext(answers)
    assert sorted(script.ended) == ["0", "1"]


async def test_reader_too_far_behind_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAR_BEHIND", 5)
    script = worker(50)
    async with Answers(script, asks(1)) as answers:
        await asyncio.sleep(0.05)
        assert script.ended == ["0"]
        for _ in range(5):
            await anext(answers)
        with pytest.raises(RunError, match="5 tokens behind"):
            await anext(answers)


async def test_reader_that_keeps_up_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAR_BEHIND", 5)
    async with Answers(worker(50), asks(1)) as answers:
        assert len([one async for one in answers]) == 50
