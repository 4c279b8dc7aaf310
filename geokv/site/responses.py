"""From tokens to HTTP: whole answers and server-sent events, in OpenAI's words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse

from geokv.engine.generation import TokenEvent
from geokv.errors import GeokvError
from geokv.site.openai import ChatRequest, CompletionRequest, error_body, usage
from geokv.site.refusal import Refusal, status_of
from geokv.site.worker import Ask, Worker

T = TypeVar("T")
CREATED_S = 1_767_225_600
"""``created`` of everything: fixed, as nothing but a run folder's label reads a wall clock."""


class Completion:
    """Wording of ``/v1/completions``."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str) -> None:
        self.model = model

    def choice(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}

    def delta(self, index: int, event: TokenEvent) -> dict[str, Any]:
        return self.choice(index, event.text, event.finish)


class Chat:
    """Wording of ``/v1/chat/completions``."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, model: str) -> None:
        self.model = model

    def choice(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": finish,
        }

    def delta(self, index: int, event: TokenEvent) -> dict[str, Any]:
        delta = {"content": event.text}
        if event.index == 0:
            delta = {"role": "assistant", **delta}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": event.finish}


async def respond(
    request: Request,
    worker: Worker,
    body: CompletionRequest | ChatRequest,
    asks: list[Ask],
    words: Completion | Chat,
) -> Any:
    """Answer every prompt, streamed or whole. Several prompts are answered one after another."""
    name = asks[0].request_id
    head = {"id": f"{words.prefix}-{name}", "created": CREATED_S, "model": words.model}
    headers = {"x-request-id": name}
    if body.stream:
        include = body.stream_options is not None and body.stream_options.include_usage
        lines = _stream(worker, asks, words, head, include)
        # The first event is awaited here, so that a request that cannot be served
        # gets its HTTP status and not an error inside a 200.
        first = await _unless_gone(request, anext(lines))
        return StreamingResponse(
            _chain(first, lines), media_type="text/event-stream", headers=headers
        )
    choices = await _unless_gone(request, _whole(worker, asks, words))
    return JSONResponse(
        {**head, "object": words.kind, "choices": choices, "usage": _total(worker, asks)},
        headers=headers,
    )


async def _whole(worker: Worker, asks: list[Ask], words: Completion | Chat) -> list[dict[str, Any]]:
    choices = []
    for index, one in enumerate(asks):
        text, finish = "", "stop"
        async for event in worker.answer(one):
            text, finish = text + event.text, event.finish or finish
        choices.append(words.choice(index, text, finish))
    return choices


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled when the client hangs up: nobody would read it.

    (Once a response streams, Starlette watches the connection itself.)
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hang_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refusal(499, "the client went away", "client_closed_request")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hang_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(
    worker: Worker,
    asks: list[Ask],
    words: Completion | Chat,
    head: dict[str, Any],
    include_usage: bool,
) -> AsyncIterator[str]:
    base = {**head, "object": words.chunk_kind}
    extra = {"usage": None} if include_usage else {}
    for index, one in enumerate(asks):
        started = False
        try:
            async for event in worker.answer(one):
                started = True
                yield _line({**base, "choices": [words.delta(index, event)], **extra})
        except GeokvError as error:
            if not started and index == 0:
                raise
            yield _line(error_body(error.message, status_of(error)[1]))
            return
    if include_usage:
        yield _line({**base, "choices": [], "usage": _total(worker, asks)})
    yield "data: [DONE]\n\n"


async def _chain(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for line in rest:
        yield line


def _line(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _total(worker: Worker, asks: list[Ask]) -> dict[str, Any]:
    records = [worker.records[one.request_id] for one in asks]
    return usage(
        sum(record.prompt_tokens for record in records),
        sum(record.cached_tokens for record in records),
        sum(len(record.output_ids) for record in records),
    )
