"""What the cache asks of a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from geokv.cache.substrate import Handler, Transport


class Directory(Protocol):
    """Maps chunk keys to the sites that say they have them.

    What it says is a hint and may be old: only a verified chunk is a hit. Each call
    has a deadline (monotonic ns) and raises ``FetchError`` when it passes.
    """

    def bind(self, site: str, transport: Transport) -> Mapping[str, Handler]:
        """Take the site's transport; returns the calls that this site must answer."""

    async def join(self, deadline_ns: int) -> None:
        """Begin a life of this site: what earlier lives published is forgotten."""

    async def publish(self, keys: Sequence[bytes], deadline_ns: int) -> None:
        """This site has ``keys`` now."""

    async def withdraw(self, keys: Sequence[bytes], deadline_ns: int) -> None:
        """This site no longer has ``keys``."""

    async def locate(self, keys: Sequence[bytes], deadline_ns: int) -> list[tuple[str, ...]]:
        """For each key the sites that have it, in the order in which they published."""

    def entries(self) -> dict[bytes, tuple[str, ...]] | None:
        """The whole table: key -> sites; None where it is not kept here."""

    def stats(self) -> dict[str, Any]:
        """Sizes and counters."""

    def check_integrity(self) -> None:
        """Raises ``CacheError`` if the part that is kept here contradicts itself."""
