"""Rate caps of what a site sends, by tenant and by link.

A token bucket that stores no tokens, only when the next byte may go (the generic cell
rate algorithm, ITU-T I.371): exact in integers, and waiting for it is one timer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.way import PIECE_BYTES, RightOfWay
from geokv.clock import now_ns, wait_until_ns
from geokv.errors import ConfigError
from geokv.units import NS_PER_S

BURST_BYTES = 256 * 1024


class TokenBucket:
    """Lets ``rate_bps`` pass on the average and ``burst_bytes`` at once.

    Raises:
        ConfigError: a number is not positive.
    """

    def __init__(self, rate_bps: int, burst_bytes: int = BURST_BYTES) -> None:
        if rate_bps < 1 or burst_bytes < 1:
            raise ConfigError(
                f"rate cap: must be ≥ 1 bit/s and ≥ 1 byte, got {rate_bps} and {burst_bytes}"
            )
        self._rate_bps = rate_bps
        self._burst = burst_bytes * 8 * NS_PER_S
        # Both in bit-ns per s: dividing by the rate only once keeps it exact.
        self._booked = 0

    def take(self, n_bytes: int, now: int) -> int:
        """Book ``n_bytes``; the time (ns) from which they may be sent."""
        at = now * self._rate_bps
        start = max(self._booked, at)
        self._booked = start + n_bytes * 8 * NS_PER_S
        wait = self._booked - self._burst - at
        return now if wait <= 0 else now - (-wait // self._rate_bps)


class Throttle:
    """What decides when a site may send, shared by all its connections.

    Args:
        tenants: bit/s that go out for a tenant, to all sites together.
        links: bit/s that go out to a site, for all tenants together.

    Attributes:
        way: who gives way to whom, whatever the rates.

    Raises:
        ConfigError: a rate is not positive.
    """

    def __init__(
        self, tenants: Mapping[str, int] | None = None, links: Mapping[str, int] | None = None
    ) -> None:
        self.way = RightOfWay()
        self._tenants = {name: TokenBucket(rate) for name, rate in (tenants or {}).items()}
        self._links = {name: TokenBucket(rate) for name, rate in (links or {}).items()}

    def caps(self, peer: str, tenant: str) -> bool:
        """Is there a cap on what goes to ``peer`` for ``tenant``?"""
        return peer in self._links or tenant in self._tenants

    def take(self, peer: str, tenant: str, n_bytes: int, now: int) -> int:
        """Book ``n_bytes``; the time (ns) from which they may be sent."""
        buckets = (self._links.get(peer), self._tenants.get(tenant))
        return max((bucket.take(n_bytes, now) for bucket in buckets if bucket), default=now)

    async def send(
        self, channel: Channel, pieces: Sequence[memoryview], peer: str, tenant: str
    ) -> None:
        """Write ``pieces`` no faster than the caps allow; returns when all are sent.

        Raises:
            FetchError: the connection ended first.
        """
        for piece in pieces:
            for start in range(0, len(piece), BURST_BYTES):
                part = piece[start : start + BURST_BYTES]
                await wait_until_ns(self.take(peer, tenant, len(part), now_ns()))
                channel.write([part])
        await channel.drain()

    async def give_way(
        self, channel: Channel, pieces: Sequence[memoryview], peer: str, tenant: str
    ) -> None:
        """As ``send``, and only while no fetch is being answered.

        Raises:
            FetchError: the connection ended first.
        """
        channel.send_late(PIECE_BYTES)
        for piece in pieces:
            for start in range(0, len(piece), PIECE_BYTES):
                part = piece[start : start + PIECE_BYTES]
                await self.way.clear()
                if self.caps(peer, tenant):
                    await wait_until_ns(self.take(peer, tenant, len(part), now_ns()))
                channel.write([part])
                await channel.drain()
