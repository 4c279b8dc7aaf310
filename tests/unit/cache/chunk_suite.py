"""What a shared cache must do whatever engine carries its chunks.

A test file takes these tests with ``from chunk_suite import *`` and says with a fixture
``make_transport`` how a site's transport is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from cache_sites import TENANT, Site, content, filling, make_layout, make_refs, soon

from geokv.cache import CentralDirectory, ChunkLayout, ChunkRef, DramTier, Lru, SharedCache
from geokv.cache.substrate import Transport
from geokv.errors import FetchError

LAYOUT = make_layout()
MakeTransport = Callable[[str, ChunkLayout], Transport]


async def make_site(
    make: MakeTransport, name: str, peers: dict[str, tuple[str, int]], **more: Any
) -> Site:
    events: list[dict[str, Any]] = []
    cache = SharedCache(
        name,
        LAYOUT,
        DramTier(LAYOUT, more.pop("chunks", 64) * LAYOUT.wire_bytes, Lru()),
        CentralDirectory("a"),
        make(name, LAYOUT),
        events.append,
        **more,
    )
    port = await cache.start("127.0.0.1", 0, peers)
    return Site(cache, port, events)


@pytest.fixture
async def pair(make_transport: MakeTransport) -> AsyncIterator[tuple[Site, Site]]:
    a = await make_site(make_transport, "a", {}, lease_s=2.0)
    b = await make_site(make_transport, "b", {"a": ("127.0.0.1", a.port)})
    a.cache.add_peer("b", "127.0.0.1", b.port)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    yield a, b
    for site in (a, b):
        await site.cache.close()
    for site in (a, b):
        site.cache.check_integrity(deep=True)
        stats = site.cache.tier.stats()
        assert stats["reserved"] == stats["leaving"] == stats["pinned"] == 0


async def test_chunks_come_whole_and_verified(pair: tuple[Site, Site]) -> None:
    a, b = pair
    refs = make_refs(LAYOUT, 12)
    await a.put(refs)
    outcome, got = await b.pull(refs, 20)
    assert got == [content(ref, LAYOUT) for ref in refs], outcome
    assert outcome.remote_chunks == 12 and outcome.wire_bytes == 12 * LAYOUT.wire_bytes
    await unpinned(a)
    assert a.cache.stats()["served"] == {"ok": 12}
    assert a.cache.stats()["served_bytes"] >= 12 * LAYOUT.wire_bytes


async def unpinned(site: Site, seconds: float = 5.0) -> None:
    deadline = soon(seconds)
    while site.cache.tier.stats()["pinned"]:
        assert soon(0) < deadline, "a pin is never let go"
        await asyncio.sleep(0.005)


async def test_what_is_not_there_or_not_theirs_is_a_counted_miss(pair: tuple[Site, Site]) -> None:
    a, b = pair
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    a.cache.tier.drop([refs[1].key])  # behind the directory's back
    outcome, got = await b.pull(refs, 20)
    assert got == [content(refs[0], LAYOUT)] and outcome.misses == {"absent": 1}
    stolen = [ChunkRef(refs[2].key, refs[2].parent, refs[2].tokens, "rival")]
    outcome, got = await b.pull(stolen, 20)
    assert not got and set(outcome.misses) <= {"foreign", "absent"}
    collided = [ChunkRef(refs[2].key, refs[2].parent, tuple(reversed(refs[2].tokens)), TENANT)]
    await b.cache.drop()
    outcome, got = await b.pull(collided, 20)
    assert not got and outcome.misses == {"mismatch": 1}


async def test_damage_in_the_owners_memory_is_corrupt(pair: tuple[Site, Site]) -> None:
    a, b = pair
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    place = a.cache.tier.exposed(refs[1].key)
    place[100] ^= 1
    outcome, got = await b.pull(refs, 20)
    assert got == [content(refs[0], LAYOUT)] and outcome.misses == {"corrupt": 1}
    place[100] ^= 1
    outcome, got = await b.pull(refs, 20)
    assert got == [content(ref, LAYOUT) for ref in refs]


async def test_many_askers_of_one_chunk_read_it_once(pair: tuple[Site, Site]) -> None:
    a, b = pair
    refs = make_refs(LAYOUT, 6)
    await a.put(refs)
    results = await asyncio.gather(*(b.pull(refs, 20) for _ in range(4)))
    assert all(got == [content(ref, LAYOUT) for ref in refs] for _, got in results)
    assert sum(outcome.remote_chunks for outcome, _ in results) == 6


async def test_a_cancelled_fetch_leaves_nothing_behind(pair: tuple[Site, Site]) -> None:
    a, b = pair
    refs = make_refs(LAYOUT, 16)
    await a.put(refs)
    for steps in (1, 3, 6, 10, 20):
        pulling = asyncio.ensure_future(b.pull(refs, 20))
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
        assert b.cache.tier.stats()["reserved"] == 0
        await b.cache.drop()
    outcome, got = await b.pull(refs, 20)
    assert got == [content(ref, LAYOUT) for ref in refs], outcome
    await unpinned(a)


async def test_a_site_that_came_back_is_believed_anew(
    make_transport: MakeTransport,
) -> None:
    b = await make_site(make_transport, "b", {})

    try:
        for life in range(3):
            a = await make_site(make_transport, "a", {})
            refs = make_refs(LAYOUT, 2, seed=life)
            for ref in refs:
                assert await a.cache.store(ref, filling(ref, LAYOUT), publish=False)
            transport: Any = b.cache.transport
            control = getattr(transport, "_control", transport)
            control.move_peer("a", "127.0.0.1", a.port)
            for ref in refs:
                into = memoryview(bytearray(LAYOUT.real_bytes))
                header = None
                for _ in range(2):  # the first answer of a new life may only tell of it
                    try:
                        header = await transport.submit("a", ref, into, soon(10)).done
                        break
                    except FetchError as error:
                        assert error.cause in {"stale", "unreachable"}, error
                assert header is not None and bytes(into) == content(ref, LAYOUT)
            await a.cache.close()
    finally:
        await b.cache.close()


__all__ = [name for name in dict(globals()) if name.startswith("test_")] + ["pair"]
