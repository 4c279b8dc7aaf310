"""What a purge does to one site's tiers, and what must not be used there now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geokv.cache.history import History
from geokv.cache.lifetime.purge import Purger, Receipt
from geokv.cache.locality import TierStack
from geokv.cache.membership.neighbours import Neighbours
from geokv.cache.ownership.directory import Spawn
from geokv.cache.substrate import Handler, Transport
from geokv.errors import ConfigError


@dataclass(frozen=True)
class PurgeSettings:
    """How purges are made (see ``lifetime.purge``).

    Args:
        authority: the site that numbers them.
        log_path: where the authority keeps its log over restarts.
    """

    authority: str
    bound_s: float
    log_path: Path | None = None


class Forgetting:
    """One site's part in purges, or the lack of any.

    Args:
        gone: told every key that was forgotten.
        revoke: ends what is being sent of (tenant, older than this epoch).

    Attributes:
        on_forget: told a tenant of which nothing older than now may be used any more.

    Raises:
        ConfigError: purges without heartbeats, or with an impossible bound.
    """

    def __init__(
        self,
        site: str,
        settings: PurgeSettings | None,
        neighbours: Neighbours,
        transport: Transport,
        tiers: TierStack,
        history: History,
        spawn: Spawn,
        gone: Callable[[bytes], None],
    ) -> None:
        self.on_forget: Callable[[str], None] = lambda tenant: None
        self.revoke: Callable[[str, int], None] = lambda tenant, epoch: None
        self._tiers = tiers
        self._history = history
        self._gone = gone
        self._purger: Purger | None = None
        if settings is None:
            return
        if neighbours.membership is None:
            raise ConfigError(
                "a purge can only be bounded between sites that send heartbeats",
                "set cache.membership",
            )
        self._purger = Purger(
            site,
            settings.authority,
            settings.bound_s,
            neighbours.membership,
            transport,
            neighbours.names,
            settings.log_path,
            history,
            spawn,
            self._forget,
        )
        tiers.refuses = lambda header: self.outdated(header.tenant, header.epoch)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Calls that this site must answer."""
        return self._purger.handlers if self._purger is not None else {}

    @property
    def bound_ns(self) -> int:
        """How long after a purge nothing of it is used anywhere; 0 where there are none."""
        return self._purger.bound_ns if self._purger is not None else 0

    def epoch(self, tenant: str) -> int:
        """What chunks of ``tenant`` must carry to be used: the number of its last purge."""
        return self._purger.epoch(tenant) if self._purger is not None else 0

    @property
    def fenced(self) -> bool:
        """Must this site use nothing, because it may not have heard of a purge?"""
        return self._purger is not None and self._purger.fenced

    def outdated(self, tenant: str, epoch: int) -> str:
        """Why nothing of this epoch of ``tenant`` may be kept."""
        return "" if epoch == self.epoch(tenant) else "purged"

    def closed_to(self, tenant: str, epoch: int) -> str:
        """Why nothing of this epoch of ``tenant`` may be used or sent now."""
        if self._purger is None:
            return ""
        return "fenced" if self._purger.fenced else self.outdated(tenant, epoch)

    async def purge(self, tenant: str, purge_id: str, deadline_ns: int) -> Receipt:
        """As ``Purger.purge``. Raises ``ConfigError`` where there are no purges."""
        if self._purger is None:
            raise ConfigError(
                "a purge needs somebody who numbers it, and a bound",
                "set cache.purge and cache.membership, and a central directory",
            )
        return await self._purger.purge(tenant, purge_id, deadline_ns)

    def stats(self) -> dict[str, Any] | None:
        """How far this site has come, where there are purges."""
        return self._purger.stats() if self._purger is not None else None

    def _forget(self, tenant: str, epoch: int) -> None:
        """Drop everything of ``tenant`` that is older than ``epoch``, and stop sending it."""
        old = []
        for key in self._tiers.keys("all"):
            header = self._tiers.header(key)
            if header is not None and header.tenant == tenant and header.epoch < epoch:
                old.append(key)
        self.revoke(tenant, epoch)
        for key, where, place in self._tiers.drop("all", old):
            self._history.note("drop", key, tier=where, place=place, cause="purged")
        for key in old:
            self._gone(key)
        self.on_forget(tenant)
