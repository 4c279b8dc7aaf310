"""Why a request gets no answer, as an HTTP status in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geokv.errors import ComputeError, EngineError, GeokvError, NoRoom, Overloaded, RunError
from geokv.site.record import CLIENT_GONE

INVALID = "invalid_request_error"


class Refusal(Exception):
    """An HTTP error in OpenAI's form.

    Args:
        param: the parameter that is to blame, as the client wrote it.
        code: OpenAI's machine-readable word, where there is one.
    """

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = INVALID,
        param: str | None = None,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, kind, param, code)
        self.headers = dict(headers or {})


def error_body(
    message: str, kind: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error as OpenAI's clients parse it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def client_gone() -> Refusal:
    """Nobody reads it; it ends the request and names why."""
    return Refusal(499, CLIENT_GONE, "client_closed_request")


INTERNAL_ERROR = error_body("internal error; see the site's log", "server_error")
"""All that a client is told of a fault of ours."""


def refusal_of(error: GeokvError) -> Refusal:
    """One of our own errors as a client is to see it; what to do next belongs to the message."""
    text = f"{error.message}; {error.hint}" if error.hint else error.message
    if isinstance(error, Overloaded):
        return Refusal(
            429,
            text,
            "rate_limit_error",
            code="overloaded",
            headers={"Retry-After": str(error.retry_after_s)},
        )
    if isinstance(error, NoRoom):
        return Refusal(503, text, "server_error", code="no_room")
    if isinstance(error, RunError):
        return Refusal(504, text, "timeout")
    if isinstance(error, EngineError) and not isinstance(error, ComputeError):
        return Refusal(400, text)
    return Refusal(500, text, "server_error")
