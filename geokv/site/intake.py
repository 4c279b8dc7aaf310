"""From the bytes of a request to one of the API's shapes, with everything bounded.

The body is parsed in one go by pydantic's own JSON reader, which refuses what Python's
takes: lone surrogates, bytes that are not UTF-8, and nesting that would overflow a stack.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from geokv.site.refusal import Refusal, client_gone
from geokv.units import show_size

MAX_BODY_BYTES = 8 << 20
"""A prompt of 128k tokens, as ids, takes less than 1 MiB."""

_SHOWN_CHARACTERS = 100

Shape = TypeVar("Shape", bound=BaseModel)


async def read(request: Request, shape: type[Shape], deadline_s: float) -> Shape:
    """The body as ``shape``.

    Raises:
        Refusal: 400 with the parameter to blame, 408, 413, 415 or 499.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if kind.lower() != "application/json":
        raise Refusal(415, f"content-type: must be application/json, got {kind!r}; add the header")
    body = await _body(request, deadline_s)
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, shape) from None


async def _body(request: Request, deadline_s: float) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(deadline_s):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise Refusal(
            408, f"the body did not come within {deadline_s:g} s; send it again", "timeout"
        ) from None
    except ClientDisconnect:
        raise client_gone() from None
    return bytes(body)


def _too_large() -> Refusal:
    return Refusal(
        413, f"the body is larger than {show_size(MAX_BODY_BYTES)}; send a shorter prompt"
    )


def _refusal(error: ValidationError, shape: type[BaseModel]) -> Refusal:
    """The first thing that is wrong, in words, with its parameter."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON ({text.removeprefix('Invalid JSON: ')})")
    if first["type"] == "extra_forbidden":
        text = "is not a parameter here, or not supported; leave it out"
    if first["loc"]:
        param = ".".join(str(part) for part in first["loc"])[:_SHOWN_CHARACTERS]
        return Refusal(400, f"{param}: {text}", param=param)
    # What a check of several parameters says begins with the one to blame.
    name = text.partition(":")[0]
    if name in shape.model_fields:
        return Refusal(400, text, param=name)
    return Refusal(400, f"the body: {text}")
