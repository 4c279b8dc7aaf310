"""Telling the directory what this site has and no longer has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from geokv.cache.history import History
from geokv.cache.locality import TierStack
from geokv.cache.ownership import Directory
from geokv.clock import now_ns
from geokv.errors import CacheError


class Announcer:
    """One site's voice in the directory; a call that fails is counted, never raised.

    Args:
        limit_ns: deadline of calls that no request waits for.
        on_failure: told why a call failed.
        spawn: runs work that no caller waits for.
    """

    def __init__(
        self,
        tier: TierStack,
        directory: Directory,
        history: History,
        limit_ns: int,
        on_failure: Callable[[str], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._tier = tier
        self._directory = directory
        self._history = history
        self._limit_ns = limit_ns
        self._on_failure = on_failure
        self._spawn = spawn
        self._gone: dict[bytes, None] = {}
        self._new: dict[bytes, None] = {}
        # What the directory may believe to be here: told, and not taken back for certain.
        self._told: dict[bytes, None] = {}
        self._telling: asyncio.Task[None] | None = None

    async def tell(
        self,
        op: Literal["publish", "withdraw"],
        keys: Sequence[bytes],
        deadline_ns: int | None = None,
    ) -> bool:
        """All ``keys`` in one call; False if the directory did not take it."""
        if not keys:
            return True
        seq = 0
        until = now_ns() + self._limit_ns if deadline_ns is None else deadline_ns
        try:
            if op == "publish":
                self._told.update(dict.fromkeys(keys))
                seq = await self._directory.publish(keys, until)
            else:
                for key in keys:
                    self._told.pop(key, None)
                seq = await self._directory.withdraw(keys, until)
        except BaseException as error:
            self._told.update(dict.fromkeys(keys))
            if not isinstance(error, CacheError):
                raise
            self._on_failure(f"{op}: {error.message}")
            return False
        for key in keys:
            self._history.note(op, key, seq=seq)
        return True

    def publish_soon(self, keys: Sequence[bytes]) -> None:
        """Publish without making anybody wait."""
        self._spawn(self._publish(keys))

    def left(self, key: bytes) -> None:
        """``key`` is no more here; nothing is told that the directory never heard of."""
        if key in self._told:
            self.gone(key)

    def gone(self, key: bytes) -> None:
        """``key`` is not here; what goes at the same moment is told in one call."""
        self._gone[key] = None
        if self._telling is None or self._telling.done():
            self._telling = self._spawn(self._tell_all())

    def new(self, key: bytes) -> None:
        """``key`` is here and worth telling; what comes at the same moment is told in
        one call."""
        self._new[key] = None
        if self._telling is None or self._telling.done():
            self._telling = self._spawn(self._tell_all())

    async def _publish(self, keys: Sequence[bytes]) -> None:
        # Some may have gone, and been withdrawn, since this was asked for.
        await self.tell("publish", [key for key in keys if key in self._tier])

    async def _tell_all(self) -> None:
        while self._gone or self._new:
            gone = [key for key in self._gone if key not in self._tier]
            new = [key for key in self._new if key in self._tier]
            self._gone.clear()
            self._new.clear()
            await self.tell("withdraw", gone)
            await self.tell("publish", new)
