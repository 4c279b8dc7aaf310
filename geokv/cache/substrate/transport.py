"""What the cache asks of a transport.

The shape is NIXL's, cut to what a site needs: named agents (sites) that load each
other's addresses, memory that belongs to the caller, a posted transfer as a handle
with a state, and an explicit end. A transfer reads a chunk by key into the caller's
memory; nothing is promised about that memory until the transfer is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.errors import FetchError

TransferState = Literal["queued", "active", "done", "error"]

# Who goes first where several wait for one connection.
URGENT, FETCH, PUSH, BACKGROUND = 0, 1, 2, 3


@dataclass(eq=False)
class Transfer:
    """One chunk on its way here.

    Attributes:
        into: memory for the real KV of the chunk, or of ``group``.
        layout: of the asked site when this was posted. Should the site have come back
            with another one since, the transfer ends as ``mismatch``.
        done: the verified header, or ``FetchError``. Cancelling it while the
            transfer is active closes the connection it runs on.
        stripe: connection it ran on, -1 before it was sent.
        site: whom it is asked from.
        priority: ``FETCH`` is for what a request waits for; ``BACKGROUND`` waits for it.
        group: the one layer group that is asked for; -1 for the whole chunk.
        exact: KV that has lost something on its way ends as ``lossy``.
        wire_bytes: payload bytes that came, coded ones as they came.
    """

    ref: ChunkRef
    into: memoryview
    layout: ChunkLayout
    deadline_ns: int
    done: asyncio.Future[ChunkHeader]
    priority: int = FETCH
    group: int = -1
    exact: bool = True
    site: str = ""
    wire_bytes: int = 0
    state: TransferState = "queued"
    stripe: int = -1
    requested_ns: int = 0
    first_byte_ns: int = 0
    last_byte_ns: int = 0
    verified_ns: int = 0


@dataclass
class Served:
    """What a source lends to the server for one answer.

    Args:
        header: packed record header.
        pieces: the payload in wire order, ``[real of group 0, filler of group 0, …]``.
        lease_ns: after which the server must stop sending.
        release: called exactly once, when no byte will be read any more.
        lossy: the KV has lost something (another element type, a lossy codec).
        generation: of the place that is lent.
        revoke: ends the answer now, with a cause; set by whoever sends it.
    """

    header: bytes
    pieces: list[memoryview]
    lease_ns: int
    release: Callable[[], None]
    lossy: bool = False
    generation: int = 0
    revoke: Callable[[str], None] | None = None

    def part(self, group: int, groups: int, exact: bool) -> Served | str:
        """What of it answers a request, or why nothing does (``lossy``, ``mismatch``) and
        it is released.

        Args:
            group: the one layer group of ``groups`` that is asked for; -1 for all.
            exact: KV that has lost something is no answer.
        """
        if self.lossy and exact:
            cause = "lossy"
        elif not -1 <= group < groups:
            cause = "mismatch"
        else:
            if group >= 0:
                self.pieces = self.pieces[2 * group : 2 * group + 2]
            return self
        self.release()
        return cause


@dataclass(frozen=True)
class Ended:
    """How an answer ended.

    Args:
        cause: empty if all of it was sent.
        sent_bytes, total_bytes: what was sent of it, and what all of it would have been.
        generation: of the place it came from; 0 where nothing was lent.
    """

    cause: str
    sent_bytes: int = 0
    total_bytes: int = 0
    generation: int = 0


@dataclass
class Landing:
    """A place that a sink has reserved for a chunk which a peer pushes.

    Args:
        into: memory for the real KV; written to until ``commit`` or ``abort``.
        commit: called once with the verified header, and the chunk is readable; raises
            ``FetchError`` if it must not be kept after all, and the place is given back.
        abort: called once with the cause, when no byte can land any more.
    """

    into: memoryview
    commit: Callable[[ChunkHeader], None]
    abort: Callable[[str], None]


class ChunkSink(Protocol):
    """Where pushed chunks go."""

    def reserve(self, header: ChunkHeader, peer: str, incarnation: int) -> Landing | str:
        """A place for the chunk, or why not (``present``, ``full``, ``mismatch`` …)."""


class ChunkSource(Protocol):
    """The serving side's view of a site's cache."""

    async def reach(self, key: bytes, tenant: str) -> None:
        """Bring what lies in a slower tier to where ``open`` finds it.

        Returns at once for what is there already or nowhere, and in any case within
        the lease an answer has.
        """

    def ready(self, key: bytes) -> bool:
        """Would ``reach`` return at once?"""

    def forgo(self, key: bytes) -> None:
        """What ``reach`` has brought will not be opened after all."""

    def open(self, key: bytes, tenant: str, peer: str) -> Served | str:
        """Pin a chunk for ``peer``, or the cause why not (``absent``, ``foreign``)."""

    def closed(self, key: bytes, peer: str, ended: Ended) -> None:
        """An answer ended."""


@dataclass(frozen=True)
class Caller:
    """Who asks, as proved in the handshake."""

    site: str
    incarnation: int


Handler = Callable[[Caller, bytes], Awaitable[bytes]]


class Transport(Protocol):
    """Both sides of one site's substrate.

    Attributes:
        on_peer: told (site, up, cause) when a peer is left alone or asked again.
    """

    on_peer: Callable[[str, bool, str], None]

    @property
    def incarnation(self) -> int:
        """Of this site's process; greater than that of any earlier life."""

    async def serve(
        self,
        host: str,
        port: int,
        source: ChunkSource,
        handlers: Mapping[str, Handler],
        sink: ChunkSink | None = None,
    ) -> int:
        """Listen; returns the port (useful when 0 was asked). Without a ``sink`` every
        pushed chunk is refused.

        Raises:
            CacheError: the address cannot be bound.
        """

    def add_peer(self, site: str, host: str, port: int) -> None:
        """Make another site known; nothing is connected yet."""

    async def connect(self, site: str, deadline_ns: int) -> None:
        """Open every connection to ``site``.

        Raises:
            FetchError: ``unreachable``, ``timeout``, ``unauthorised`` or ``mismatch``.
        """

    async def reconnect(self, site: str, deadline_ns: int) -> None:
        """Replace every connection to ``site`` by a new one."""

    async def warm(self, site: str, n_bytes: int, deadline_ns: int) -> None:
        """Pull ``n_bytes`` of filler over every data connection at once."""

    def submit(
        self,
        site: str,
        ref: ChunkRef,
        into: memoryview,
        deadline_ns: int,
        *,
        priority: int = FETCH,
        group: int = -1,
        exact: bool = True,
    ) -> Transfer:
        """Post a read; connections are opened when none is.

        Args:
            into: of ``group`` alone, if one is asked for.
        """

    def stop(self, transfer: Transfer) -> None:
        """End ``transfer``: when this returns, nothing writes to its memory any more."""

    async def push(
        self, sites: Sequence[str], ref: ChunkRef, deadline_ns: int
    ) -> dict[str, FetchError | None]:
        """Offer one chunk of this site to ``sites``: it is read once and sent to all who
        take it. Per site ``None`` once it is readable there, or why it is not."""

    async def call(self, site: str, method: str, body: bytes, deadline_ns: int) -> bytes:
        """One small request to a handler of ``site``.

        Raises:
            FetchError: no answer in time, or the handler refused.
        """

    def layout(self, site: str) -> ChunkLayout:
        """How the chunks of ``site`` lie, as it said when it joined; this site's own
        layout (the same object) where it is equal or not known yet."""

    def up(self, site: str) -> bool:
        """False while a site that did not answer is left alone."""

    def hold(self, site: str, cause: str) -> None:
        """``site`` is known to be down: what is under way with it in either direction ends
        as ``unreachable``, and it is left alone until ``release``."""

    def release(self, site: str) -> None:
        """``site`` is known to be up."""

    def pair_key(self, site: str) -> bytes:
        """A secret of this site and ``site``, from which keys for other uses are derived."""

    def stats(self) -> dict[str, Any]:
        """Counters and socket state, for the run folder."""

    async def close(self) -> None:
        """Close every socket; every open transfer ends in ``FetchError``."""
