"""From answers to HTTP: whole, or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from geokv.errors import GeokvError
from geokv.site.answers import Answers
from geokv.site.logprobs import ChatLogprobs, CompletionLogprobs
from geokv.site.openai import StreamOptions
from geokv.site.refusal import INTERNAL_ERROR, client_gone, refusal_of
from geokv.site.wording import CREATED_S, Wording, usage
from geokv.site.worker import Ask, Worker
from geokv.units import NS_PER_S

T = TypeVar("T")
LAST_WORDS_S = 1.0
"""How long after its deadline a stream may still be sent; then its connection is cut."""

_log = logging.getLogger(__name__)


async def respond(
    request: Request,
    worker: Worker,
    asks: list[Ask],
    words: Wording,
    stream: StreamOptions | None,
) -> Response:
    """Answer all prompts side by side.

    Args:
        stream: None for a whole answer.

    Raises:
        GeokvError: before the first token; later it is the last event of the stream.
    """
    name = asks[0].request_id
    head = {"id": f"{words.prefix}-{name}", "created": CREATED_S, "model": words.model}
    headers = {"x-request-id": name}
    if stream is not None:
        lines = _lines(worker, asks, words, head, stream)
        # The first event is awaited here, so that a request that cannot be served
        # gets its HTTP status and not an error inside a 200.
        first = await unless_gone(request, anext(lines))
        ends_s = max(ask.deadline_ns for ask in asks) / NS_PER_S + LAST_WORDS_S
        return EventStream(first, lines, ends_s, headers)
    body = await unless_gone(request, _whole(worker, asks, words))
    return JSONResponse({**head, **body}, headers=headers)


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled when the client hangs up: nobody would read it.

    Raises:
        Refusal: 499, the client hung up.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hang_up(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise client_gone()
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _whole(worker: Worker, asks: list[Ask], words: Wording) -> dict[str, Any]:
    count = sum(ask.params.n for ask in asks)
    texts, finishes = [""] * count, ["stop"] * count
    said = _logprobs(worker, words)
    parts: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    async with Answers(worker, asks) as answers:
        async for index, event in answers:
            texts[index] += event.text
            finishes[index] = event.finish or finishes[index]
            part = said[index].take(event)
            if part is not None:
                parts[index].append(part)
        totals = usage(answers.prompt_tokens, answers.completion_tokens, answers.cached_tokens)
    return {
        "object": words.kind,
        "choices": [
            words.choice(i, texts[i], finishes[i], said[i].join(parts[i]) if parts[i] else None)
            for i in range(count)
        ],
        "usage": totals,
    }


async def _lines(
    worker: Worker, asks: list[Ask], words: Wording, head: dict[str, Any], options: StreamOptions
) -> AsyncGenerator[str, None]:
    base = {**head, "object": words.chunk_kind}
    said = _logprobs(worker, words)
    started = False
    async with Answers(worker, asks) as answers:
        try:
            async for index, event in answers:
                started = True
                chunk = {**base, "choices": [words.delta(index, event, said[index].take(event))]}
                if options.include_usage:
                    so_far = answers.prompt_tokens, answers.completion_tokens
                    chunk["usage"] = usage(*so_far) if options.continuous_usage_stats else None
                yield _line(chunk)
        except GeokvError as error:
            if not started:
                raise
            yield _line(refusal_of(error).body)
            return
        except Exception:
            if not started:
                raise
            _log.exception("request %s failed in the middle", asks[0].request_id)
            yield _line(INTERNAL_ERROR)
            return
        if options.include_usage:
            totals = usage(answers.prompt_tokens, answers.completion_tokens, answers.cached_tokens)
            yield _line({**base, "choices": [], "usage": totals})
    yield "data: [DONE]\n\n"


def _logprobs(
    worker: Worker, words: Wording
) -> defaultdict[int, CompletionLogprobs | ChatLogprobs]:
    """Of every answer of a request; they say nothing where none were asked for."""
    return defaultdict(lambda: words.logprobs(worker.tokenizer))


def _line(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


class EventStream(Response):
    """Server-sent events that end by a deadline, whether or not the client reads them.

    Args:
        ends_s: on the event loop's clock. A client that has not taken everything by then
            loses its connection; so does the generator when the client hangs up.
    """

    media_type = "text/event-stream"

    def __init__(
        self, first: str, rest: AsyncGenerator[str, None], ends_s: float, headers: dict[str, str]
    ) -> None:
        super().__init__(headers={**headers, "cache-control": "no-cache"})
        del self.headers["content-length"]
        self._first = first
        self._rest = rest
        self._ends_s = ends_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_hang_up(receive))
        try:
            async with asyncio.timeout_at(self._ends_s):
                await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            abort: Callable[[], None] | None = scope.get("state", {}).get("abort")
            if abort is not None:
                abort()
        finally:
            sending.cancel()
            gone.cancel()
            results = await asyncio.gather(sending, gone, return_exceptions=True)
            await self._rest.aclose()
        if isinstance(results[0], Exception):
            raise results[0]

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send(_body(self._first))
        async for line in self._rest:
            await send(_body(line))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(line: str) -> dict[str, Any]:
    return {"type": "http.response.body", "body": line.encode(), "more_body": True}
