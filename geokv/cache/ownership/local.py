"""The directory of a site that shares with nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from geokv.cache.history import History
from geokv.cache.ownership.directory import Spawn
from geokv.cache.substrate import Handler, Transport


class LocalDirectory:
    """Knows no other site: every key that is not here is nowhere."""

    def bind(self, site: str, transport: Transport) -> Mapping[str, Handler]:
        return {}

    def attach(
        self,
        history: History,
        spawn: Spawn,
        here: Callable[[bytes], bool],
        found: Sequence[bytes] = (),
    ) -> None:
        return None

    def close(self) -> None:
        return None

    def peer_down(self, site: str) -> None:
        return None

    def peer_up(self, site: str) -> None:
        return None

    async def join(self, deadline_ns: int) -> None:
        return None

    async def publish(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        return 0

    async def withdraw(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        return 0

    async def locate(self, keys: Sequence[bytes], deadline_ns: int) -> list[tuple[str, ...]]:
        return [() for _ in keys]

    def entries(self) -> dict[bytes, tuple[str, ...]] | None:
        return None

    def stats(self) -> dict[str, Any]:
        return {"kind": "local"}

    def check_integrity(self) -> None:
        return None
