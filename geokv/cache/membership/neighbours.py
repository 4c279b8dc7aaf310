"""One site's neighbours: reaching all of them, and what follows when one comes or goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from geokv.cache.history import History
from geokv.cache.membership.heartbeat import Membership
from geokv.cache.membership.settings import MembershipSettings
from geokv.cache.ownership import Directory
from geokv.cache.substrate import Transport
from geokv.errors import CacheError


class Neighbours:
    """All other sites, as one of them deals with them.

    Args:
        settings: when a peer is down by its heartbeats; ``None`` sends none.

    Attributes:
        names: of all peers, in the order in which they became known.
        membership: where there are heartbeats.
    """

    def __init__(
        self,
        site: str,
        transport: Transport,
        directory: Directory,
        history: History,
        settings: MembershipSettings | None,
    ) -> None:
        self.names: list[str] = []
        self.membership: Membership | None = None
        self._transport = transport
        self._directory = directory
        self._history = history
        if settings is not None:
            self.membership = Membership(
                site,
                transport.incarnation,
                settings,
                transport.pair_key,
                self._down,
                self._up,
            )
        transport.on_peer = self._changed

    def start(self, host: str, port: int) -> None:
        """Begin to beat. Raises ``CacheError`` if the address is taken."""
        if self.membership is not None:
            self.membership.start(host, port)

    def add(self, site: str, host: str, port: int) -> None:
        """Make one more site known."""
        self._transport.add_peer(site, host, port)
        self.names.append(site)
        if self.membership is not None:
            self.membership.add(site, host, port)

    async def reach(
        self, connect: Callable[[str, int], Awaitable[None]], deadline_ns: int
    ) -> BaseException | None:
        """``connect`` to all, and join the directory whoever of them could not be reached.

        Returns:
            What went wrong, that which waiting does not cure first.
        """
        results = await asyncio.gather(
            *(connect(peer, deadline_ns) for peer in self.names), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        errors.sort(key=lambda e: getattr(e, "cause", "") not in {"unauthorised", "mismatch"})
        try:
            await self._directory.join(deadline_ns)
        except CacheError as error:
            errors.append(error)
        return errors[0] if errors else None

    def close(self) -> None:
        """Beat no more."""
        if self.membership is not None:
            self.membership.close()

    def stats(self) -> dict[str, Any] | None:
        """Of the heartbeats, where there are any."""
        return self.membership.stats() if self.membership is not None else None

    # -- inside ----------------------------------------------------------------

    def _down(self, peer: str, cause: str, incarnation: int) -> None:
        self._history.note("peer-down", peer=peer, cause=cause, incarnation=incarnation)
        self._transport.hold(peer, cause)
        self._directory.peer_down(peer)

    def _up(self, peer: str, incarnation: int) -> None:
        self._history.note("peer-up", peer=peer, cause="", incarnation=incarnation)
        self._transport.release(peer)
        self._directory.peer_up(peer)

    def _changed(self, peer: str, up: bool, cause: str) -> None:
        """The transport's own finding; where there are heartbeats, theirs is noted."""
        if self.membership is None:
            self._history.note("peer-up" if up else "peer-down", peer=peer, cause=cause)
