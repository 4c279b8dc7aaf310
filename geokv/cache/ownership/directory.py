"""What the cache asks of a directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from geokv.cache.history import History
from geokv.cache.substrate import Handler, Transport

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Directory(Protocol):
    """Maps chunk keys to the sites that say they have them.

    What it says is a hint and may be old: only a verified chunk is a hit. Each call
    has a deadline (monotonic ns) and raises ``FetchError`` when it passes.
    """

    def bind(self, site: str, transport: Transport) -> Mapping[str, Handler]:
        """Take the site's transport; returns the calls that this site must answer."""

    def attach(
        self,
        history: History,
        spawn: Spawn,
        here: Callable[[bytes], bool],
        found: Sequence[bytes] = (),
    ) -> None:
        """What keeping in step needs. Called once, before ``bind``, in the event loop.

        Args:
            history: told of gaps and of what was put right.
            spawn: works behind the caller's back.
            here: does this site have a key?
            found: what it has from an earlier life.
        """

    def close(self) -> None:
        """Do nothing more by itself."""

    def peer_down(self, site: str) -> None:
        """``site`` is known to be down."""

    def peer_up(self, site: str) -> None:
        """``site`` is there again."""

    async def join(self, deadline_ns: int) -> None:
        """Begin a life of this site: what earlier lives published is forgotten."""

    async def publish(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        """This site has ``keys`` now. Returns the event's number, 0 where none has one."""

    async def withdraw(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        """This site no longer has ``keys``. Returns as ``publish``."""

    async def locate(self, keys: Sequence[bytes], deadline_ns: int) -> list[tuple[str, ...]]:
        """For each key the sites that have it, in the order in which they published."""

    def entries(self) -> dict[bytes, tuple[str, ...]] | None:
        """The whole table: key -> sites; None where it is not kept here."""

    def stats(self) -> dict[str, Any]:
        """Sizes and counters."""

    def check_integrity(self) -> None:
        """Raises ``CacheError`` if the part that is kept here contradicts itself."""
