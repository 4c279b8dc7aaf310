"""Copies of this site's chunks at other sites, made when nobody waits for the line.

A chunk that was computed here is pushed to the sites that are to have it, read once
for all of them, one chunk at a time. Only the site that computed a chunk pushes it, so
that copies do not make copies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef
from geokv.cache.locality import TierStack
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError
from geokv.units import NS_PER_S

Pushed: TypeAlias = dict[str, FetchError | None]
Push = Callable[[Sequence[str], ChunkRef, int], Awaitable[Pushed]]


@dataclass(frozen=True)
class Replication:
    """Where copies go.

    Args:
        to: sites.
        when: as soon as the directory has heard of a chunk (``published``), or when it
            is used again here, by whomever (``hot``).
        deadline_s: of one chunk; what has not come by then is a counted failure.
    """

    to: tuple[str, ...]
    when: Literal["published", "hot"] = "published"
    deadline_s: float = 30.0


class Replicator:
    """Pushes chunks of ``tiers``.

    Args:
        push: as ``Transport.push``.
        spawn: runs work that no caller waits for.

    Attributes:
        ends: how the pushes ended, one count per chunk and site: ``ok`` or the cause.
    """

    def __init__(
        self,
        what: Replication,
        tiers: TierStack,
        push: Push,
        history: History,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.ends: Counter[str] = Counter()
        self._what = what
        self._tiers = tiers
        self._push = push
        self._history = history
        self._spawn = spawn
        self._own: dict[bytes, None] = {}
        self._queue: dict[bytes, None] = {}
        self._pushing: asyncio.Task[None] | None = None

    def stored(self, key: bytes) -> None:
        """``key`` was computed here."""
        self._own[key] = None

    def gone(self, key: bytes) -> None:
        """It is here no more."""
        self._own.pop(key, None)
        self._queue.pop(key, None)

    def published(self, keys: Iterable[bytes]) -> None:
        """The directory knows of ``keys``, head first."""
        if self._what.when == "published":
            self._add(keys)

    def hot(self, key: bytes) -> None:
        """``key`` is used again."""
        if self._what.when == "hot":
            self._add([key])

    def _add(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            # Pushed once: what a receiver evicts later it evicted for something better.
            if self._own.pop(key, 0) is None:
                self._queue[key] = None
        if self._queue and (self._pushing is None or self._pushing.done()):
            self._pushing = self._spawn(self._run())

    async def _run(self) -> None:
        while self._queue:
            key = next(iter(self._queue))
            del self._queue[key]
            header = self._tiers.header(key)
            if header is None:
                continue
            ref = ChunkRef(key, header.parent, header.tokens, header.tenant, header.epoch)
            until = now_ns() + round(self._what.deadline_s * NS_PER_S)
            for site, error in (await self._pushed(ref, until)).items():
                cause = "" if error is None else error.cause
                self.ends[cause or "ok"] += 1
                self._history.note("replicate", key, target=site, cause=cause)

    async def _pushed(self, ref: ChunkRef, until_ns: int) -> Pushed:
        try:
            return await self._push(self._what.to, ref, until_ns)
        except CacheError as error:
            failed = FetchError("unreachable", error.message, error.hint)
            return dict.fromkeys(self._what.to, failed)
