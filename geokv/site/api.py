"""A site's front door: OpenAI-compatible HTTP."""

from __future__ import annotations

import ipaddress
import math
import re
import uuid
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from geokv import __version__
from geokv.clock import now_ns
from geokv.errors import GeokvError
from geokv.site import intake
from geokv.site.logprobs import TokenNames
from geokv.site.metrics import CONTENT_TYPE, Metrics
from geokv.site.openai import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Prompt,
    StreamOptions,
    TokenizeRequest,
)
from geokv.site.refusal import INTERNAL_ERROR, INVALID, Refusal, error_body, refusal_of
from geokv.site.responses import respond
from geokv.site.settings import Tenant
from geokv.site.tenants import Roster, key_digest
from geokv.site.wording import CREATED_S, Chat, Completion
from geokv.site.worker import Ask, Worker
from geokv.units import NS_PER_S

_REQUEST_ID = re.compile(r"^[A-Za-z0-9._:/-]{1,128}$")
_TIMEOUT = "x-request-timeout-s"


def build_api(
    site: str,
    model: str,
    worker: Worker,
    tenants: Roster | Iterable[Tenant],
    deadline_s: float,
    operator_keys: Iterable[str] = (),
) -> FastAPI:
    """The application.

    Args:
        deadline_s: of a request that asks for none shorter.
        operator_keys: API keys that may read ``/metrics`` from another machine. A tenant's
            key does not do, as the figures are those of all tenants.
    """
    app = FastAPI(title=f"geokv site {site}", docs_url=None, redoc_url=None, openapi_url=None)
    roster = tenants if isinstance(tenants, Roster) else Roster(tenants)
    operators = {key_digest(key) for key in operator_keys}
    metrics = Metrics(model, worker)
    worker.on_finished = metrics.observe
    names = TokenNames(worker.tokenizer)

    def who(authorization: Annotated[str, Header()] = "") -> Tenant:
        found = roster.whose(_bearer(authorization))
        if found is None:
            raise _unknown_key()
        return found

    tenant = Depends(who)

    def check_model(asked: str | None) -> None:
        if asked is not None and asked != model:
            raise Refusal(
                404,
                f"this site serves {model!r}, not {asked[:100]!r}",
                param="model",
                code="model_not_found",
            )

    def tokens_of(prompt: Prompt) -> list[int]:
        return worker.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

    def asks(
        request: Request,
        body: CompletionRequest | ChatRequest,
        whose: Tenant,
        prompts: list[list[int]],
    ) -> list[Ask]:
        param = "prompt" if isinstance(body, CompletionRequest) else "messages"
        for tokens in prompts:
            _check_ids(worker, param, tokens)
            _check_length(worker, model, param, tokens)
            _check_limit(worker, body, tokens)
        params = body.sampling(body.limit, body.top_logprobs_wanted)
        if params.n > worker.loop.settings.max_running:
            most = worker.loop.settings.max_running
            raise Refusal(400, f"n: this site computes {most} answers at most", param="n")
        given = request.headers.get("x-request-id", "")
        name = given if _REQUEST_ID.match(given) else f"req-{uuid.uuid4().hex}"
        ends_ns = now_ns() + round(_deadline_s(request, deadline_s) * NS_PER_S)
        return [
            Ask(f"{name}/{i}" if i else name, whose, tokens, params, ends_ns)
            for i, tokens in enumerate(prompts)
        ]

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "site": site}

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics")
    async def exposition(request: Request) -> Response:
        key = key_digest(_bearer(request.headers.get("authorization", "")))
        if not _is_this_machine(request) and key not in operators:
            raise Refusal(
                401,
                "/metrics is for this machine, and for the operator's key from elsewhere",
                "authentication_error",
            )
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    @app.get("/v1/models")
    async def models(whose: Tenant = tenant) -> dict[str, Any]:
        return {"object": "list", "data": [_card(model, worker)]}

    @app.get("/v1/models/{name:path}")
    async def one_model(name: str, whose: Tenant = tenant) -> dict[str, Any]:
        check_model(name)
        return _card(model, worker)

    @app.post("/v1/completions")
    async def completions(request: Request, whose: Tenant = tenant) -> Response:
        body = await intake.read(request, CompletionRequest, deadline_s)
        check_model(body.model)
        prompts = [tokens_of(prompt) for prompt in body.prompt]
        echoes = [
            prompt if isinstance(prompt, str) else worker.tokenizer.decode(prompt)
            for prompt in (body.prompt if body.echo else [])
        ]
        words = Completion(model, names, echoes, body.choices)
        return await respond(
            request, worker, asks(request, body, whose, prompts), words, _streaming(body)
        )

    @app.post("/v1/chat/completions")
    async def chat(request: Request, whose: Tenant = tenant) -> Response:
        body = await intake.read(request, ChatRequest, deadline_s)
        check_model(body.model)
        tokens = worker.tokenizer.chat([message.plain() for message in body.messages])
        words = Chat(model, names)
        return await respond(
            request, worker, asks(request, body, whose, [tokens]), words, _streaming(body)
        )

    @app.post("/tokenize")
    async def tokenize(request: Request, whose: Tenant = tenant) -> dict[str, Any]:
        body = await intake.read(request, TokenizeRequest, deadline_s)
        check_model(body.model)
        tokens = worker.tokenizer.encode(body.prompt)
        limit = worker.engine.limit_tokens
        return {"count": len(tokens), "max_model_len": limit, "tokens": tokens}

    @app.post("/detokenize")
    async def detokenize(request: Request, whose: Tenant = tenant) -> dict[str, str]:
        body = await intake.read(request, DetokenizeRequest, deadline_s)
        check_model(body.model)
        _check_ids(worker, "tokens", body.tokens)
        return {"prompt": worker.tokenizer.decode(body.tokens)}

    @app.exception_handler(Refusal)
    async def on_refusal(_: Request, error: Refusal) -> JSONResponse:
        return JSONResponse(error.body, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        text = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(error_body(text, INVALID), error.status_code, error.headers)

    @app.exception_handler(GeokvError)
    async def on_error(request: Request, error: GeokvError) -> JSONResponse:
        return await on_refusal(request, refusal_of(error))

    @app.exception_handler(Exception)
    async def on_fault(_: Request, error: Exception) -> JSONResponse:
        # Starlette raises it again, so that the server logs where it came from.
        return JSONResponse(INTERNAL_ERROR, 500)

    return app


def _check_ids(worker: Worker, param: str, tokens: list[int]) -> None:
    vocab = worker.engine.model.config.vocab_size
    if tokens and max(tokens) >= vocab:
        raise Refusal(400, f"{param}: a token id is not below {vocab}", param=param)


def _check_length(worker: Worker, model: str, param: str, tokens: list[int]) -> None:
    limit = worker.engine.limit_tokens
    if 1 <= len(tokens) < limit:
        return
    what = model if limit == worker.engine.model.config.max_tokens else "this site's KV pool"
    raise Refusal(
        400,
        f"{param}: {len(tokens)} tokens; {what} takes 1 to {limit - 1}",
        param=param,
        code="context_length_exceeded",
    )


def _check_limit(worker: Worker, body: CompletionRequest | ChatRequest, tokens: list[int]) -> None:
    """A limit that was asked for and cannot be kept is refused; our own default is not."""
    limit = worker.engine.limit_tokens
    room = limit - len(tokens)
    if body.limit > room and getattr(body, body.limit_name) is not None:
        raise Refusal(
            400,
            f"{body.limit_name}: {body.limit} tokens after a prompt of {len(tokens)} are more "
            f"than the {limit} there is room for; ask for {room} at most",
            param=body.limit_name,
            code="context_length_exceeded",
        )


def _streaming(body: CompletionRequest | ChatRequest) -> StreamOptions | None:
    return (body.stream_options or StreamOptions()) if body.stream else None


def _deadline_s(request: Request, most_s: float) -> float:
    """What the client gives the request, at most what the site does."""
    given = request.headers.get(_TIMEOUT)
    if given is None:
        return most_s
    try:
        asked_s = float(given)
    except ValueError:
        asked_s = math.nan
    if not 0 < asked_s < math.inf:
        raise Refusal(400, f"{_TIMEOUT}: must be seconds > 0, got {given[:100]!r}", param=_TIMEOUT)
    return min(asked_s, most_s)


def _card(model: str, worker: Worker) -> dict[str, Any]:
    return {
        "id": model,
        "object": "model",
        "created": CREATED_S,
        "owned_by": "geokv",
        "root": model,
        "parent": None,
        "max_model_len": worker.engine.limit_tokens,
    }


def _bearer(authorization: str) -> str:
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _unknown_key() -> Refusal:
    return Refusal(
        401,
        "unknown API key: send Authorization: Bearer KEY",
        "authentication_error",
        code="invalid_api_key",
    )


def _is_this_machine(request: Request) -> bool:
    """Whether the client has one of this machine's own addresses."""
    client, server = request.client, request.scope.get("server")
    if client is None:
        return False
    try:
        loopback = ipaddress.ip_address(client.host).is_loopback
    except ValueError:
        return False
    return loopback or (server is not None and client.host == server[0])
