"""A site's front door: OpenAI-compatible HTTP."""

from __future__ import annotations

import re
import uuid
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from geokv.clock import now_ns
from geokv.errors import GeokvError
from geokv.site.openai import ChatRequest, CompletionRequest, error_body
from geokv.site.refusal import Refusal, status_of
from geokv.site.responses import CREATED_S, Chat, Completion, respond
from geokv.site.settings import Tenant
from geokv.site.worker import Ask, Worker
from geokv.units import NS_PER_S

_REQUEST_ID = re.compile(r"^[A-Za-z0-9._:/-]{1,128}$")


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
            "data": [{"id": model, "object": "model", "created": CREATED_S, "owned_by": "geokv"}],
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
        return await respond(request, worker, body, asks, Completion(model))

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request, who: Tenant = known) -> Any:
        tokens = worker.tokenizer.chat([message.plain() for message in body.messages])
        asks = [ask(request, body, who, tokens, body.limit)]
        return await respond(request, worker, body, asks, Chat(model))

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
        status, kind = status_of(error)
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
