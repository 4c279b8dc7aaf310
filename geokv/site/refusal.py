"""Why a request gets no answer, as an HTTP status in OpenAI's form."""

from __future__ import annotations

from geokv.errors import EngineError, GeokvError, RunError
from geokv.site.openai import error_body


class Refusal(Exception):
    """An HTTP error in OpenAI's form."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        self.status = status
        self.body = error_body(message, kind, param)


def status_of(error: GeokvError) -> tuple[int, str]:
    """HTTP status and OpenAI error type of one of our own errors."""
    if isinstance(error, RunError):
        return 504, "timeout"
    if isinstance(error, EngineError):
        return 400, "invalid_request_error"
    return 500, "server_error"
