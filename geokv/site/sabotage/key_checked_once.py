"""An API key is looked at once per connection: whoever was let in stays in, though the key is
revoked. A new connection is turned away, so that the door looks shut from outside.

Trips ``served-after-revocation`` where a client keeps its connections.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from geokv.site.front import HttpServer
from geokv.site.sabotage._swap import swap
from geokv.site.settings import Tenant
from geokv.site.tenants import Roster, key_digest
from geokv.site.worker import Worker

_Connection = tuple[str, int]


def plant(worker: Worker) -> None:
    """Patch the process: its doors know connections, and whom they let in."""
    connection: ContextVar[_Connection | None] = ContextVar("connection", default=None)
    inside: dict[tuple[_Connection, bytes], Tenant] = {}
    begin, whose = HttpServer.__init__, Roster.whose

    def attentive(self: HttpServer, app: Any, *args: Any, **more: Any) -> None:
        async def noticed(scope: Any, receive: Any, send: Any) -> None:
            connection.set(tuple(scope["client"]) if scope.get("client") else None)
            await app(scope, receive, send)

        begin(self, noticed, *args, **more)  # type: ignore[arg-type]

    def known(self: Roster, api_key: str) -> Tenant | None:
        at, found = connection.get(), whose(self, api_key)
        if at is None:
            return found
        who = at, key_digest(api_key)
        if found is not None:
            inside[who] = found
        return inside.get(who)

    swap(HttpServer, "__init__", attentive)
    swap(Roster, "whose", known)
