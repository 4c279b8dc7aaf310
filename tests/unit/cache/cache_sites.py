"""Two or more sites on loopback, and a small TCP proxy that damages what passes."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from cache_proxy import Proxy

from geokv.cache import (
    CentralDirectory,
    ChunkLayout,
    ChunkRef,
    Directory,
    DramTier,
    Entry,
    Lru,
    Outcome,
    Plan,
    SharedCache,
    TcpTransport,
    chunk_refs,
    root_key,
)
from geokv.cache.fetching import OnChunk
from geokv.cache.substrate.tcp.keyring import Keyring
from geokv.clock import now_ns
from geokv.units import NS_PER_S

SECRET = b"a secret of the deployment"
TENANT = "acme"


def soon(seconds: float = 5.0) -> int:
    """A deadline."""
    return now_ns() + round(seconds * NS_PER_S)


def make_layout(**changes: Any) -> ChunkLayout:
    """Small chunks: 4 layers x 2 x 32 tokens x 2 heads x 8 wide float32 = 16 KiB real,
    64 KiB on the wire, two layer groups."""
    fields: dict[str, Any] = {
        "model_fingerprint": "tiny",
        "dtype": "float32",
        "layers": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "block_tokens": 16,
        "chunk_tokens": 32,
        "groups": 2,
        "wire_bytes_per_token": 2048,
    }
    return ChunkLayout(**{**fields, **changes})


def make_refs(
    layout: ChunkLayout, chunks: int, seed: int = 0, tenant: str = TENANT
) -> list[ChunkRef]:
    rng = random.Random(seed)
    tokens = [rng.randrange(32000) for _ in range(chunks * layout.chunk_tokens)]
    root = root_key(layout.model_fingerprint, tenant.encode())
    return chunk_refs(root, tokens, layout.chunk_tokens, layout.block_tokens, tenant)


def content(ref: ChunkRef, layout: ChunkLayout) -> bytes:
    """Stands for the KV of a chunk: depends on its key alone."""
    return random.Random(ref.key).randbytes(layout.real_bytes)


def filling(ref: ChunkRef, layout: ChunkLayout) -> Callable[[memoryview], None]:
    def fill(view: memoryview) -> None:
        view[:] = content(ref, layout)

    return fill


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection, as ``Channel`` wants them."""
    pair = socket.socketpair()
    for sock in pair:
        sock.setblocking(False)
    return pair


@dataclass
class Site:
    cache: SharedCache
    port: int
    events: list[dict[str, Any]]

    async def put(self, refs: list[ChunkRef]) -> None:
        for ref in refs:
            assert await self.cache.store(ref, filling(ref, self.cache.layout), publish=False)
        assert await self.cache.publish([ref.key for ref in refs])

    async def pull(self, refs: list[ChunkRef], seconds: float = 5.0) -> tuple[Any, list[bytes]]:
        """Look up and fetch; the outcome and the bytes in the order they were handed over."""
        got: list[bytes] = []

        async def take(index: int, entry: Entry) -> None:
            assert index == len(got)
            got.append(bytes(entry.view))

        deadline = soon(seconds)
        plan = await self.cache.lookup(refs, deadline)
        return await self.cache.fetch(plan, deadline, take), got

    async def fetch(self, plan: Plan, take: OnChunk | None = None, *, layered: bool) -> Outcome:
        """Run a plan, whole chunks or layer group by layer group; nothing is copied out.

        Args:
            take: sees every whole chunk.
        """

        async def chunk(index: int, entry: Entry) -> None:
            return None

        async def piece(index: int, group: int, view: memoryview) -> None:
            return None

        async def group(index: int, count: int) -> None:
            return None

        if layered:
            return await self.cache.fetch_layered(plan, soon(), piece, group)
        return await self.cache.fetch(plan, soon(), take or chunk)

    def ops(self, op: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["op"] == op]


@dataclass
class World:
    """Sites made in a test; all are closed and checked at its end."""

    sites: list[Site] = field(default_factory=list)

    async def site(
        self,
        name: str,
        layout: ChunkLayout,
        *,
        chunks: int = 64,
        spare: int = 0,
        directory: Directory | None = None,
        secret: bytes | Keyring = SECRET,
        port: int = 0,
        peers: dict[str, tuple[str, int]] | None = None,
        transport: dict[str, Any] | None = None,
        **more: Any,
    ) -> Site:
        events: list[dict[str, Any]] = []
        cache = SharedCache(
            name,
            layout,
            DramTier(layout, chunks * layout.wire_bytes, Lru(), spare),
            directory or CentralDirectory("a"),
            TcpTransport(name, layout, secret, **(transport or {})),
            events.append,
            **more,
        )
        bound = await cache.start("127.0.0.1", port, peers or {})
        site = Site(cache, bound, events)
        self.sites.append(site)
        return site

    async def pair(self, layout: ChunkLayout, **more: Any) -> tuple[Site, Site]:
        """Site a with the directory and site b, connected to each other."""
        a = await self.site("a", layout, **more)
        b = await self.site("b", layout, peers={"a": ("127.0.0.1", a.port)}, **more)
        a.cache.add_peer("b", "127.0.0.1", b.port)
        await a.cache.connect(soon())
        await b.cache.connect(soon())
        return a, b

    async def behind_proxy(
        self,
        layout: ChunkLayout,
        *,
        a: dict[str, Any] | None = None,
        b: dict[str, Any] | None = None,
        record: Sequence[list[bytes]] = (),
        **both: Any,
    ) -> tuple[Site, Site, Proxy]:
        """Site a behind a proxy, and site b, which has the directory and asks a through it:
        once they are connected nothing but requests and payload passes the proxy.

        Args:
            a, b: settings of this site alone; another ``layout`` may be among them.
            record: as of ``Proxy.record_into``, from the first connection on.
        """
        more = {"layout": layout, **both}
        asker = await self.site("b", **{**more, "directory": CentralDirectory("b"), **(b or {})})
        peers = {"b": ("127.0.0.1", asker.port)}
        owner = await self.site(
            "a", **{**more, "directory": CentralDirectory("b"), "peers": peers, **(a or {})}
        )
        proxy = await Proxy(owner.port).start()
        if record:
            proxy.record_into(*record)
        asker.cache.add_peer("a", "127.0.0.1", proxy.port)
        await owner.cache.connect(soon())
        await asker.cache.connect(soon())
        return owner, asker, proxy


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for site in made.sites:
        await site.cache.close()
    for site in made.sites:
        site.cache.check_integrity(deep=True)
        stats = site.cache.tier.stats()
        assert stats["reserved"] == stats["leaving"] == stats["pinned"] == 0
