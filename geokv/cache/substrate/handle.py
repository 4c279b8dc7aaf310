"""One transfer of the object model (see ``agent``), and the engine that moves its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol

from geokv.cache.substrate.segments import MemoryKind, Pair, Remote, Segment
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError
from geokv.units import NS_PER_S

Op = Literal["READ", "WRITE"]
State = Literal["INIT", "PROC", "DONE", "ERR"]


class Backend(Protocol):
    """An engine that moves bytes between registered memories."""

    @property
    def stops(self) -> bool:
        """Can ``settle`` end a transfer at once, whatever the other agent does?"""

    @property
    def name(self) -> str:
        """As blobs name it."""

    @property
    def kinds(self) -> frozenset[MemoryKind]:
        """Memory it can register."""

    def register(self, segment: Segment) -> None:
        """Make a segment reachable. ``CacheError`` if the engine refuses it."""

    def deregister(self, segment: Segment) -> None:
        """Undo it."""

    def private(self, segments: Sequence[Segment]) -> bytes:
        """What another agent's engine must know to reach these segments."""

    def load(self, remote: Remote) -> None:
        """Get ready for transfers with ``remote``; may wait to connect until the first."""

    def forget(self, remote: Remote) -> None:
        """Disconnect and drop everything about it; no transfer with it ends ``DONE``."""

    def post(self, handle: Handle, deadline_ns: int) -> None:
        """Start; calls ``handle.ended`` once, in the event loop, by the deadline at the
        latest."""

    async def settle(self, handle: Handle) -> None:
        """Stop ``handle`` if that can be; return when no byte of it can land."""

    def notify(self, remote: Remote, notice: bytes) -> None:
        """Tell the other agent; lost if it cannot be reached."""

    async def close(self) -> None:
        """End everything."""


class Owner(Protocol):
    """The agent that a handle was prepared by."""

    def posted(self, handle: Handle, deadline_ns: int) -> None:
        """It starts."""

    def ended(self, handle: Handle) -> None:
        """It is over."""

    async def settle(self, handle: Handle) -> None:
        """End it; no byte of it can land when this returns."""


class Handle:
    """One prepared transfer; made by ``Agent.prepare``.

    Attributes:
        error: why it is ``ERR``.
    """

    def __init__(
        self, agent: Owner, op: Op, pairs: tuple[Pair, ...], remote: Remote, notice: bytes
    ) -> None:
        self.op: Op = op
        self.pairs = pairs
        self.remote = remote
        self.notice = notice
        self.state: State = "INIT"
        self.error: FetchError | None = None
        self.length = sum(pair.length for pair in pairs)
        self._agent = agent
        self._done: asyncio.Future[None] | None = None
        self._released = False

    def post(self, deadline_ns: int) -> State:
        """Start, or start again. It ends by ``deadline_ns``.

        Raises:
            CacheError: it is active, or released.
        """
        if self._released:
            raise CacheError("a released transfer was posted", "prepare a new one")
        if self.state == "PROC":
            raise CacheError(
                f"the {self.op} with {self.remote.name!r} is active already",
                "wait for its end, or prepare a second one",
            )
        self.state, self.error = "PROC", None
        self._done = asyncio.get_running_loop().create_future()
        self._agent.posted(self, deadline_ns)
        return self.state

    async def wait(self, deadline_ns: int) -> State:
        """The state once it has ended, or ``PROC`` at the deadline."""
        if self._done is not None and not self._done.done():
            seconds = max(0.0, (deadline_ns - now_ns()) / NS_PER_S)
            await asyncio.wait([self._done], timeout=seconds)
        return self.state

    async def release(self, limit_s: float = 10.0) -> None:
        """Give it up. When this returns its local memory is the caller's alone.

        Raises:
            CacheError: the engine has not let go of the memory within ``limit_s``, which
                it may need until the other agent answers or dies. Try again later; until
                then the memory must not be used for anything else.
        """
        if self._released:
            return
        try:
            async with asyncio.timeout(limit_s):
                await self._agent.settle(self)
        except TimeoutError:
            name = self.remote.name
            raise CacheError(f"a transfer with {name!r} still holds its memory") from None
        self._released = True

    def ended(self, error: FetchError | None) -> None:
        """For backends: it is over. Only the first call of a posting counts."""
        if self.state != "PROC":
            return
        self.state = "DONE" if error is None else "ERR"
        self.error = error
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
        self._agent.ended(self)
