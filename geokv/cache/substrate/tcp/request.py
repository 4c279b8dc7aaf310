"""One exchange with a peer, seen from the asking end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Segment
from geokv.cache.substrate.tcp.wire import Kind
from geokv.cache.substrate.transport import URGENT
from geokv.errors import FetchError, RecordError


class Request:
    """One exchange.

    Attributes:
        id: set when it is sent; unique on its connection.
        result: future of whoever asked.
        outcome: what ``result`` will be, once the answer is whole; an exception fails it.
        upload: it sends payload.
        rest: what is left to do when the answer is whole, and takes time: ``rested`` is
            told then. The connection has no part in it.
    """

    rest: asyncio.Future[Any] | None = None
    priority = URGENT
    upload = False

    def __init__(self, deadline_ns: int, result: asyncio.Future[Any]) -> None:
        self.id = 0
        self.deadline_ns = deadline_ns
        self.result = result
        self.outcome: Any = None

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        """The frame to send, and the raw payload that follows it."""
        raise NotImplementedError

    def sent(self) -> None:
        """The kernel has the request: what can be done while the answer is on its way."""

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        """Look at a frame that answers this.

        Returns:
            Where the payload behind it goes; ``None`` if the answer is whole now.

        Raises:
            RecordError, FetchError: the connection cannot go on after this.
        """
        raise RecordError(f"a {kind.name} frame is no answer to this")

    def whole(self) -> None:
        """The payload is in its place."""

    def rested(self, rest: asyncio.Future[Any]) -> None:
        """``rest`` is over, and was not cancelled."""


def missed(message: wire.Miss, what: str) -> FetchError:
    """A peer's no, in our words."""
    cause = wire.known_cause(message.cause)
    return FetchError(cause, f"{what} ({cause})")
