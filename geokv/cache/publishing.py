"""What others hear of a site's chunks: the directory by policy, and sites that get copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from geokv.cache.announcing import Announcer
from geokv.cache.locality import TierStack
from geokv.cache.replicating import Replicator
from geokv.errors import ConfigError

PublishPolicy = Literal["all", "hot"]


class Publisher:
    """Passes on what becomes of chunks.

    Args:
        replicator: None sends no copies.
        policy: which chunks the directory hears of: ``all``, or those that are used again
            (``hot``; what is fetched has been).
        refetched: publish what was fetched, so that hot chunks spread.

    Raises:
        ConfigError: an unknown policy.
    """

    def __init__(
        self,
        tiers: TierStack,
        announcer: Announcer,
        replicator: Replicator | None,
        policy: PublishPolicy,
        refetched: bool,
    ) -> None:
        if policy not in get_args(PublishPolicy):
            raise ConfigError(f"unknown publish policy {policy!r}", "known: all, hot")
        self._tiers = tiers
        self._announcer = announcer
        self._replicator = replicator
        self._policy = policy
        self._refetched = refetched

    def stored(self, key: bytes) -> None:
        """It was computed here and is about to be readable."""
        if self._replicator is not None:
            self._replicator.stored(key)

    async def publish(self, keys: Sequence[bytes], deadline_ns: int | None) -> bool:
        """Tell the directory what of ``keys`` is here and may be told, in one call."""
        here = [key for key in keys if key in self._tiers]
        here = [key for key in here if self._policy == "all" or self._tiers.is_hot(key)]
        told = await self._announcer.tell("publish", here, deadline_ns)
        if self._replicator is not None:
            self._replicator.published(here)
        return told

    async def withdraw(self, keys: Sequence[bytes], deadline_ns: int | None) -> bool:
        """Tell the directory that ``keys`` will not be here any more, in one call."""
        return await self._announcer.tell("withdraw", keys, deadline_ns)

    def fetched(self, keys: Sequence[bytes]) -> None:
        """They came from another site, for a request or without one: another site pushed
        them, or they came when their prefix had already ended."""
        if self._refetched:
            self._announcer.publish_soon(keys)

    def gone(self, key: bytes) -> None:
        """It is not here any more."""
        self._announcer.left(key)
        if self._replicator is not None:
            self._replicator.gone(key)

    def became_hot(self, key: bytes) -> None:
        """It was used again."""
        if self._policy == "hot":
            self._announcer.new(key)
        if self._replicator is not None:
            self._replicator.hot(key)
            if self._policy == "hot":
                self._replicator.published([key])
