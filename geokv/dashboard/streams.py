"""What is pushed to pages: the list of runs as it changes, and one run's steps as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from geokv.dashboard import sse
from geokv.dashboard.head import Head
from geokv.dashboard.reading import Folder
from geokv.dashboard.shelf import Shelf
from geokv.dashboard.tail import Place, read_steps, source_of

LIST_EVERY_S = 1.0
MOST_STREAMS = 64
"""Open at once; a browser has six per server."""


class Streams:
    """Makes streams of server-sent events.

    Nothing is queued for anybody. A stream reads on when its reader has taken what it was sent:
    a slow reader of a run is behind in the file, one of the list gets fewer and larger changes.

    Args:
        closing: set when the server ends; every stream then does.
        detail: a run in full, for its page.
    """

    def __init__(
        self,
        shelf: Shelf,
        closing: asyncio.Event,
        detail: Callable[[Head, Folder], dict[str, Any]],
    ) -> None:
        self._shelf = shelf
        self._closing = closing
        self._detail = detail
        self._looking = asyncio.Lock()
        self._heads: dict[str, Head] = {}
        self._looked_s = float("-inf")
        self.open = 0

    async def heads(self) -> dict[str, Head]:
        """The list, looked up at most once per ``LIST_EVERY_S`` for all who ask."""
        async with self._looking:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._looked_s >= LIST_EVERY_S:
                self._heads = await run_in_threadpool(self._shelf.look)
                self._looked_s = asyncio.get_running_loop().time()
            return self._heads

    async def of_list(self) -> AsyncGenerator[bytes, None]:
        """``runs``: ``{"all": whether it is the whole list, "upsert": [run …], "removed": [id …],
        "left_off": n}``."""
        sent: dict[str, Head] | None = None
        with self._counted():
            while not self._closing.is_set():
                heads = await self.heads()
                before = sent or {}
                changed = [head for name, head in heads.items() if before.get(name) != head]
                removed = [name for name in before if name not in heads]
                if sent is None or changed or removed:
                    yield sse.message(
                        "runs",
                        {
                            "all": sent is None,
                            "upsert": [head.to_json() for head in changed],
                            "removed": removed,
                            "left_off": self._shelf.left_off,
                        },
                    )
                    sent = heads
                else:
                    yield b""
                await self._pause(LIST_EVERY_S)

    async def of_run(self, identity: str, place: Place | None) -> AsyncGenerator[bytes, None]:
        """``run`` (in full, again when its state changes), ``steps`` (an array; its id is where
        to go on), ``restart`` (what was sent before is void), ``end``.

        Args:
            place: what the reader has had, from its ``Last-Event-ID``.
        """
        folder = self._shelf.folder(identity)
        said = None
        with self._counted():
            while not self._closing.is_set():
                head = await run_in_threadpool(self._shelf.head, identity)
                if head is None or folder is None:
                    yield sse.message("end", {"state": "removed"})
                    return
                key = (head.state, head.verdict, head.live)
                if key != said:
                    said = key
                    yield sse.message("run", await run_in_threadpool(self._detail, head, folder))
                source = await run_in_threadpool(source_of, folder)
                if source is not None and (place is None or place.file != source):
                    place = Place(source, 0)
                    yield sse.message("restart", {})
                moved = False
                while place is not None:
                    steps, after = await run_in_threadpool(read_steps, folder, place)
                    if after == place or self._closing.is_set():
                        break
                    if after.offset < place.offset:
                        yield sse.message("restart", {})
                    place, moved = after, True
                    if steps:
                        yield sse.message("steps", steps, str(place))
                # What it wrote between the look at its state and the last reading is read too.
                if head.state != "running" and not moved:
                    yield sse.message("end", {"state": head.state})
                    return
                yield b""
                await self._pause(sse.LOOK_EVERY_S)

    async def _pause(self, seconds: float) -> None:
        """So long, or until the server ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


async def with_beats(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The stream, with a comment where it has had nothing to say for a while.

    ``b""`` of the stream is a moment at which there was nothing to say.
    """
    loop = asyncio.get_running_loop()
    async with contextlib.aclosing(stream):
        yield b"retry: 1000\n\n"
        last_s = loop.time()
        async for piece in stream:
            if piece:
                yield piece
            elif loop.time() - last_s >= sse.HEARTBEAT_S:
                yield sse.BEAT
            else:
                continue
            last_s = loop.time()


class EventStream(StreamingResponse):
    """A response that closes its stream as soon as its reader has gone."""

    def __init__(self, stream: AsyncGenerator[bytes, None]) -> None:
        self._stream = with_beats(stream)
        super().__init__(self._stream, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stream.aclose()
