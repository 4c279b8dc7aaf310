"""Who may ask what: stands before every route.

Binding to the loopback address keeps other machines out, and no more than that. Any page that a
browser on this machine has open can send requests here, and a name that its owner points at
127.0.0.1 makes such a page's answers readable (DNS rebinding). So a request must name this server
as its host, a browser must say that it comes from this server's own page, and what changes anything
must carry a token that only the terminal has shown.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geokv.loopback import names_us

TOKEN_HEADER = "x-geokv-token"
BODY_LIMIT_BYTES = 64 * 2**10
_SAFE = ("GET", "HEAD")

PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
FILE_POLICY = (
    "sandbox allow-popups allow-downloads; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:"
)
"""Of files of runs: no script runs in them, and they are of no origin, whatever they say."""

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": PAGE_POLICY,
}


class Guard:
    """ASGI middleware.

    Args:
        token: what a call that changes something must carry.
        names: hosts this server answers to, as a browser writes them (``127.0.0.1``).
        port: likewise.
        any_address: also answer to any IP address, for a server on all interfaces. A name can
            be pointed anywhere, an address cannot.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        names: Iterable[str],
        port: int,
        any_address: bool = False,
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._names = frozenset(names)
        self._port = port
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            status, said = refusal
            await JSONResponse({"error": said, "hint": ""}, status)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        if len(headers.getlist("host")) != 1 or not self._is_us(headers["host"]):
            return 421, "this server answers to another host name"
        origin = headers.get("origin")
        if origin is not None and not (
            origin.startswith("http://") and self._is_us(origin.removeprefix("http://"))
        ):
            return 403, "requests of other pages are refused"
        if (
            headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
            # Following a link to here is harmless; reading or loading from elsewhere is not.
            and (method not in _SAFE or headers.get("sec-fetch-mode") != "navigate")
        ):
            return 403, "requests of other pages are refused"
        if method in _SAFE:
            return None
        given = headers.get(TOKEN_HEADER, "").encode()
        if not secrets.compare_digest(given, self._token):
            return 401, "this needs the token: open the address that geokv dashboard has printed"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "the body must be application/json"
        length = headers.get("content-length", "")
        if not length.isascii() or not length.isdigit():
            return 411, "the length of the body must be given"
        if len(length) > 9 or int(length) > BODY_LIMIT_BYTES:
            return 413, f"the body may have {BODY_LIMIT_BYTES} bytes"
        return None

    def _is_us(self, host: str) -> bool:
        return names_us(host, self._names, self._port, self._any_address)
