"""Answers of one connection take turns on it: the most urgent first, in order within a priority.

One is sent at a time, and each has a time by which it must have been handed to the kernel; a late
one closes the connection, because what follows could not be told apart from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush

import msgspec

from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.wire import FrameCodec, Kind
from geokv.cache.substrate.transport import URGENT
from geokv.errors import FetchError

Finish = Callable[[str], None]
"""Called once an answer is over, with "" or the cause of its end."""


class Turns:
    """Who is next, and what is being sent.

    Args:
        send_s: limit of an answer that is no chunk.

    Attributes:
        more: the rest of an answer that is sent in pieces; nothing comes between them.
        on_free: told whenever the line has taken what it can for now.
    """

    def __init__(self, channel: Channel, codec: FrameCodec, send_s: float) -> None:
        self.more: Callable[[], None] | None = None
        self.on_free: Callable[[], None] = lambda: None
        self._channel = channel
        self._codec = codec
        self._send_s = send_s
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._pumping = False
        self._finish: Finish | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def sending(self) -> bool:
        """Is an answer on its way into the kernel?"""
        return self._finish is not None

    def queue(self, priority: int, answer: Callable[[], None]) -> None:
        """``answer`` is called when its turn has come, and sends or does nothing."""
        self._order += 1
        heappush(self._waiting, (priority, self._order, answer))
        self._pump()

    def say(self, kind: Kind, message: msgspec.Struct) -> None:
        """Queue a small answer."""
        self.queue(URGENT, partial(self.say_now, kind, message))

    def say_now(self, kind: Kind, message: msgspec.Struct) -> None:
        """A small answer whose turn has come."""
        self.send([self._codec.pack(kind, wire.encode(message))], self._send_s)

    def send(
        self,
        pieces: Sequence[memoryview | bytes],
        limit_s: float | None = None,
        late: str = "timeout",
        finish: Finish | None = None,
    ) -> None:
        """Send ``pieces`` within ``limit_s``; ``late`` is the cause when they are not."""
        limit_s = self._send_s if limit_s is None else limit_s
        self._finish = finish or _nothing
        self._channel.write(pieces, self.sent)
        if self._finish is not None:
            self._watch(limit_s, late)

    def hold(self, limit_s: float, late: str, finish: Finish) -> None:
        """The line is the caller's, who writes by himself and says ``sent`` at the end."""
        self._finish = finish
        self._watch(limit_s, late)

    def sent(self) -> None:
        """What was being sent is in the kernel whole; the next one's turn has come."""
        finish, self._finish = self._finish, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if finish is not None:
            finish("")
        self._pump()

    def stop(self) -> None:
        """Nothing that waits is sent any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self.more = None

    def finish(self, cause: str) -> None:
        """Tell the answer under way, if there is one, that the connection has ended."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(cause)

    def _watch(self, limit_s: float, late: str) -> None:
        error = FetchError(late, f"the answer was not sent within {limit_s:g} s")
        self._timer = self._loop.call_later(limit_s, self._channel.close, error)

    def _pump(self) -> None:
        """Send what waits until something does not fit into the kernel at once."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._finish is None and not self._channel.closed:
                if self.more is not None:
                    answer, self.more = self.more, None
                elif self._waiting:
                    answer = heappop(self._waiting)[2]
                else:
                    break
                answer()
        except FetchError as error:
            self._channel.close(error)
        finally:
            self._pumping = False
        self.on_free()


def _nothing(cause: str) -> None:
    return None
