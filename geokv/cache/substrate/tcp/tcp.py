"""The TCP transport of one site: its server and its peers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from geokv.cache.codec import check_codec
from geokv.cache.codec_cost import CodecCost
from geokv.cache.codec_time import CodecTime
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.tcp.handshake import Identity, Mixed, Security
from geokv.cache.substrate.tcp.keyring import Keyring, SecretRing
from geokv.cache.substrate.tcp.memory import Memory
from geokv.cache.substrate.tcp.pool import Peer
from geokv.cache.substrate.tcp.pushing import put
from geokv.cache.substrate.tcp.server import KvServer
from geokv.cache.substrate.tcp.sockets import SocketOptions
from geokv.cache.substrate.tcp.throttle import Throttle
from geokv.cache.substrate.transport import FETCH, ChunkSink, ChunkSource, Handler, Transfer
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, FetchError


class TcpTransport:
    """Implements ``substrate.transport.Transport`` over TCP.

    Args:
        site: name of this site, as its peers know it.
        layout: how this site's chunks lie.
        keys: dealt by the operator (``keyring.deal``), or the deployment's secret
            itself, at least 16 bytes, where one hand holds all sites.
        streams: data connections per peer (stripes).
        in_flight: requests out at once on each stripe; 1 is one round trip a chunk.
        options: of every socket, both sides.
        incarnation: default is the clock, which grows from life to life.
        nonce: source of unpredictable bytes for handshakes.
        limits: ``KvServer``'s keyword limits.
        codec: in which chunks may be coded on their way here (``geokv.cache.codec``);
            ``none``, ``zstd``, and where a transfer need not be exact ``fp8``, ``int8``.
        codec_costs: what coding and decoding are charged, by codec; None charges nothing.
        tenant_caps, link_caps: bit/s that go out for a tenant, and to a site.
        security: ``mac`` or ``tls``; equal on all sites.
        mixed: whether peers with another layout are refused or, where that can be done,
            converted (``convert``).

    Raises:
        ConfigError: a number or the secret is impossible.
    """

    def __init__(
        self,
        site: str,
        layout: ChunkLayout,
        keys: Keyring | bytes,
        *,
        streams: int = 4,
        in_flight: int = 4,
        options: SocketOptions | None = None,
        incarnation: int | None = None,
        nonce: Callable[[int], bytes] = secrets.token_bytes,
        limits: Mapping[str, Any] | None = None,
        security: Security = "mac",
        mixed: Mixed = "refuse",
        codec: str = "none",
        codec_costs: Mapping[str, CodecCost] | None = None,
        tenant_caps: Mapping[str, int] | None = None,
        link_caps: Mapping[str, int] | None = None,
    ) -> None:
        for name, value in (("streams", streams), ("in_flight", in_flight)):
            if value < 1:
                raise ConfigError(f"substrate.{name}: must be ≥ 1, got {value}")
        ring = keys if isinstance(keys, Keyring) else SecretRing(site, keys)
        life = now_ns() if incarnation is None else incarnation
        self._me = Identity(site, life, layout, ring, nonce, security, mixed)
        self._streams = streams
        self._in_flight = in_flight
        self._options = options or SocketOptions()
        self._limits = dict(limits or {})
        self._codec = check_codec(codec)
        self._codecs = CodecTime(codec_costs) if codec_costs is not None else None
        self._throttle = Throttle(tenant_caps, link_caps)
        self.memory = Memory()
        self.on_peer: Callable[[str, bool, str], None] = lambda site, up, cause: None
        self._source: ChunkSource | None = None
        self._address: tuple[str, int] | None = None
        self._peers: dict[str, Peer] = {}
        self._server: KvServer | None = None

    @property
    def site(self) -> str:
        """This site."""
        return self._me.site

    @property
    def nonce(self) -> Callable[[int], bytes]:
        """Source of unpredictable bytes."""
        return self._me.nonce

    @property
    def address(self) -> tuple[str, int]:
        """Where this site listens.

        Raises:
            CacheError: it does not.
        """
        if self._address is None:
            raise CacheError(f"site {self._me.site!r} does not listen yet", "call serve first")
        return self._address

    @property
    def incarnation(self) -> int:
        return self._me.incarnation

    async def serve(
        self,
        host: str,
        port: int,
        source: ChunkSource,
        handlers: Mapping[str, Handler],
        sink: ChunkSink | None = None,
    ) -> int:
        """Listen; returns the port.

        Raises:
            CacheError: the address cannot be bound, or this site listens already.
        """
        if self._server is not None:
            raise CacheError(f"site {self._me.site!r} listens already")
        server = KvServer(
            self._me,
            source,
            sink,
            handlers,
            self.memory,
            self._throttle,
            self._options,
            codecs=self._codecs,
            **self._limits,
        )
        bound = await server.start(host, port)
        self._server = server
        self._source = source
        self._address = (host, bound)
        return bound

    def add_peer(self, site: str, host: str, port: int) -> None:
        """Make another site known.

        Raises:
            CacheError: it is known, or it is this site.
        """
        if site in self._peers or site == self._me.site:
            raise CacheError(f"peer {site!r} is known already")
        self._peers[site] = Peer(
            site,
            (host, port),
            self._me,
            self._options,
            self._streams,
            self._in_flight,
            self._throttle,
            self._codec,
            lambda peer, up, cause: self.on_peer(peer, up, cause),
            self._codecs,
        )

    def move_peer(self, site: str, host: str, port: int) -> None:
        """Make a site known, or known at another address; what was under way at the old
        one ends as ``unreachable``."""
        before = self._peers.get(site)
        if before is not None:
            if before.address == (host, port):
                return
            before.abandon()
            del self._peers[site]
        self.add_peer(site, host, port)

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the sites that are known."""
        return tuple(self._peers)

    async def connect(self, site: str, deadline_ns: int) -> None:
        await self.peer(site).connect(deadline_ns)

    async def reconnect(self, site: str, deadline_ns: int) -> None:
        await self.peer(site).reconnect(deadline_ns)

    async def warm(self, site: str, n_bytes: int, deadline_ns: int) -> None:
        await self.peer(site).warm(n_bytes, deadline_ns)

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
        peer = self.peer(site)
        done: asyncio.Future[ChunkHeader] = asyncio.get_running_loop().create_future()
        layout = peer.layout
        want = layout.real_bytes if group < 0 else layout.group_bytes[group][0]
        if len(into) != want:
            raise CacheError(f"{len(into)} bytes of memory for a transfer of {want}")
        transfer = Transfer(ref, into, layout, deadline_ns, done, priority, group, exact, site)
        peer.submit(transfer)
        return transfer

    def stop(self, transfer: Transfer) -> None:
        self.peer(transfer.site).stop(transfer)

    async def push(
        self, sites: Sequence[str], ref: ChunkRef, deadline_ns: int
    ) -> dict[str, FetchError | None]:
        if self._source is None:
            raise CacheError(f"site {self._me.site!r} serves nothing", "call serve first")
        await self._source.reach(ref.key, ref.tenant)
        served = self._source.open(ref.key, ref.tenant, ",".join(sites))
        if isinstance(served, str):
            return {site: FetchError(served, "this site has no such chunk") for site in sites}
        try:
            peers = {site: self.peer(site) for site in sites}
            results = await asyncio.gather(
                *(put(peer, served, deadline_ns, ref.tenant) for peer in peers.values()),
                return_exceptions=True,
            )
        finally:
            served.release()
        ends: list[FetchError | None] = []
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, FetchError):
                raise result
            ends.append(result)
        return dict(zip(peers, ends, strict=True))

    def peer(self, site: str) -> Peer:
        """Everything between this site and ``site``.

        Raises:
            FetchError: it is not known.
        """
        peer = self._peers.get(site)
        if peer is None:
            raise FetchError("unreachable", f"site {site!r} is not a known peer")
        return peer

    async def call(self, site: str, method: str, body: bytes, deadline_ns: int) -> bytes:
        return await self.peer(site).call(method, body, deadline_ns)

    def layout(self, site: str) -> ChunkLayout:
        """How the chunks of ``site`` lie, as it said last; ours before it said anything."""
        peer = self._peers.get(site)
        return self._me.layout if peer is None else peer.layout

    def up(self, site: str) -> bool:
        peer = self._peers.get(site)
        return peer is not None and peer.up

    def hold(self, site: str, cause: str) -> None:
        self.peer(site).hold(cause)
        if self._server is not None:
            self._server.drop(site, cause)

    def release(self, site: str) -> None:
        self.peer(site).release()

    def pair_key(self, site: str) -> bytes:
        return self._me.keys.key(site)

    def stats(self) -> dict[str, Any]:
        """``server`` and ``peers``, as their own ``stats`` say; the settings; and ``codecs``
        where they are charged."""
        return {
            "incarnation": self.incarnation,
            "security": self._me.security,
            "streams": self._streams,
            "in_flight": self._in_flight,
            "server": self._server.stats() if self._server else {},
            "peers": {name: peer.stats() for name, peer in self._peers.items()},
            **({"codecs": self._codecs.stats()} if self._codecs is not None else {}),
        }

    async def close(self) -> None:
        for peer in self._peers.values():
            await peer.close()
        if self._server is not None:
            await self._server.close()
        if self._codecs is not None:
            self._codecs.close()
