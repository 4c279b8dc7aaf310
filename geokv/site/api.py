"""A site's front door: OpenAI-compatible HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from geokv.clock import now_ns
from geokv.engine.generation import TokenEvent
from geokv.errors import EngineError, GeokvError, RunError
from geokv.site.openai import ChatRequest, CompletionRequest, error_body, usage
from geokv.site.settings import Tenant
from geokv.site.worker import Ask, Worker
from geokv.units import NS_PER_S

T = TypeVar("T")
_REQUEST_ID = re.compile(r"^[A-Za-z0-9._:/-]{1,128}$")
_STARTED_S = 1_767_225_600
"""``created`` of the model list: fixed, as nothing but a run folder's label reads a wall clock."""


class Refusal(Exception):
    """An HTTP error in OpenAI's form."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        self.status = status
        self.body = error_body(message, kind, param)


def build_api(
    site: str, model: str, worker: Worker, tenants: dict[str, Tenant], deadline_s: float
) -> FastAPI:
    """The application; ``tenants`` maps API keys to tenants."""
    app = FastAPI(title=f"geokv site {site}", docs_url=None, redoc_url=None, openapi_url=None)

    def tenant(authorization: Annotated[str, Header()] = "") -> Tenant:
        found = tenants.get(authorization.removeprefix("Bearer ").strip())
        if found is None:
            raise Refusal(
                401, "unknown API key: send Authorization: Bearer KEY", "authentication_error"
            )
        return found

    known = Depends(tenant)

    def ask(
        request: Request,
        body: CompletionRequest | ChatRequest,
        who: Tenant,
        tokens: list[int],
        max_tokens: int,
        number: int = 0,
    ) -> Ask:
        if body.model != model:
            raise Refusal(
                404,
                f"this site serves {model!r}, not {body.model!r}",
                "invalid_request_error",
                "model",
            )
        limit = worker.engine.model.config
        param = "prompt" if isinstance(body, CompletionRequest) else "messages"
        if any(token >= limit.vocab_size for token in tokens):
            raise Refusal(
                400,
                f"{param}: a token id is not below {limit.vocab_size}",
                "invalid_request_error",
                param,
            )
        if not tokens or len(tokens) >= limit.max_tokens:
            raise Refusal(
                400,
                f"{param}: {len(tokens)} tokens; {model} takes 1 to {limit.max_tokens - 1}",
                "invalid_request_error",
                param,
            )
        given = request.headers.get("x-request-id", "")
        name = given if _REQUEST_ID.match(given) else f"req-{uuid.uuid4().hex}"
        name += f"/{number}" if number else ""
        deadline_ns = now_ns() + round(deadline_s * NS_PER_S)
        return Ask(name, who, tokens, body.sampling(max_tokens), deadline_ns)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "site": site}

    @app.get("/v1/models")
    async def models(who: Tenant = known) -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": model, "object": "model", "created": _STARTED_S, "owned_by": "geokv"}],
        }

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request, who: Tenant = known) -> Any:
        asks = [
            ask(
                request,
                body,
                who,
                worker.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt,
                body.max_tokens,
                number,
            )
            for number, prompt in enumerate(body.prompts())
        ]
        if not asks:
            raise Refusal(400, "prompt: must not be empty", "invalid_request_error", "prompt")
        return await _respond(request, worker, body, asks, _Completion(model))

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request, who: Tenant = known) -> Any:
        tokens = worker.tokenizer.chat([message.plain() for message in body.messages])
        asks = [ask(request, body, who, tokens, body.limit)]
        return await _respond(request, worker, body, asks, _Chat(model))

    @app.exception_handler(Refusal)
    async def on_refusal(_: Request, error: Refusal) -> JSONResponse:
        return JSONResponse(error.body, error.status)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        broken = first["type"] == "json_invalid"
        param = None if broken else _param(first["loc"][1:], error.body)
        text = "the body is not JSON" if broken else f"{param or 'body'}: {first['msg']}"
        return JSONResponse(error_body(text, "invalid_request_error", param), 400)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        text = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(error_body(text, "invalid_request_error"), error.status_code)

    @app.exception_handler(GeokvError)
    async def on_error(_: Request, error: GeokvError) -> JSONResponse:
        status, kind = _status_of(error)
        return JSONResponse(error_body(error.message, kind), status)

    return app


def _param(loc: tuple[Any, ...], body: Any) -> str | None:
    """``loc`` as the client wrote it: pydantic adds a tag for each member of a union."""
    parts: list[str] = []
    for part in loc:
        missing = isinstance(body, dict) and part not in body and part == loc[-1]
        try:
            body = None if missing else body[part]
        except (LookupError, TypeError):
            break
        parts.append(str(part))
    return ".".join(parts) or None


def _status_of(error: GeokvError) -> tuple[int, str]:
    if isinstance(error, RunError):
        return 504, "timeout"
    if isinstance(error, EngineError):
        return 400, "invalid_request_error"
    return 500, "server_error"


class _Completion:
    """Wording of ``/v1/completions``."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str) -> None:
        self.model = model

    def choice(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}

    def delta(self, index: int, event: TokenEvent) -> dict[str, Any]:
        return self.choice(index, event.text, event.finish)


class _Chat:
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


async def _respond(
    request: Request,
    worker: Worker,
    body: CompletionRequest | ChatRequest,
    asks: list[Ask],
    words: _Completion | _Chat,
) -> Any:
    name = asks[0].request_id
    head = {"id": f"{words.prefix}-{name}", "created": _STARTED_S, "model": words.model}
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


async def _whole(
    worker: Worker, asks: list[Ask], words: _Completion | _Chat
) -> list[dict[str, Any]]:
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
    words: _Completion | _Chat,
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
            yield _line(error_body(error.message, _status_of(error)[1]))
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
