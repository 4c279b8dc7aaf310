"""Chunks cross from one site to another, whole and in order."""

from __future__ import annotations

import asyncio

import pytest
from cache_sites import World, content, make_layout, make_refs, soon


@pytest.mark.parametrize(
    ("streams", "in_flight", "chunk_tokens", "chunks"),
    [(1, 1, 16, 5), (1, 4, 32, 8), (4, 2, 32, 9), (3, 8, 64, 7), (8, 1, 16, 3)],
)
async def test_every_byte_arrives_in_prefix_order(
    world: World, streams: int, in_flight: int, chunk_tokens: int, chunks: int
) -> None:
    layout = make_layout(chunk_tokens=chunk_tokens)
    a, b = await world.pair(layout, transport={"streams": streams, "in_flight": in_flight})
    refs = make_refs(layout, chunks)
    await a.put(refs)
    await b.cache.warm(200_000, soon())
    outcome, got = await b.pull(refs)
    assert got == [content(ref, layout) for ref in refs]
    assert outcome.usable_chunks == outcome.remote_chunks == chunks
    assert outcome.wire_bytes == chunks * layout.wire_bytes
    assert not outcome.misses
    assert outcome.started_ns < outcome.first_byte_ns <= outcome.last_byte_ns
    assert outcome.last_byte_ns <= outcome.verified_ns
    assert len(a.ops("serve")) == chunks
    again, got_again = await b.pull(refs)
    assert got_again == got
    assert (again.local_chunks, again.remote_chunks, again.wire_bytes) == (chunks, 0, 0)


async def test_each_stripe_has_no_more_than_in_flight_requests_out(world: World) -> None:
    layout = make_layout()
    transport = {"streams": 3, "in_flight": 2}
    a, b, proxy = await world.behind_proxy(layout, b={"transport": transport})
    refs = make_refs(layout, 10)
    await a.put(refs)
    proxy.arm("stall", 0)
    task = asyncio.ensure_future(b.pull(refs, seconds=0.4))
    while not proxy.fired:
        await asyncio.sleep(0.001)
    peer = b.cache.transport._peers["a"]  # type: ignore[attr-defined]
    stripes = {stripe: stream for stripe, stream in peer._streams.items() if stripe >= 0}
    assert peer.stats()["queued"] <= 4
    stalled = [stream for stream in stripes.values() if stream.outstanding]
    assert stalled and all(stream.outstanding <= 2 for stream in stalled)
    outcome, _ = await task
    # Only the stalled stripe's chunks failed: the other two did all the rest.
    await b.cache.quiesce(soon())
    assert outcome.misses == {"timeout": 1}
    assert len(b.cache.tier) >= 8
    await proxy.close()


async def test_reconnecting_replaces_every_connection(world: World) -> None:
    layout = make_layout()
    a, b = await world.pair(layout)
    peer = b.cache.transport._peers["a"]  # type: ignore[attr-defined]
    before = dict(peer._streams)
    await b.cache.reconnect(soon())
    assert set(peer._streams) == set(before) == {-1, 0, 1, 2, 3}
    assert all(peer._streams[stripe] is not stream for stripe, stream in before.items())
    assert all(stream.error is not None for stream in before.values())
    refs = make_refs(layout, 3)
    await a.put(refs)
    _, got = await b.pull(refs)
    assert got == [content(ref, layout) for ref in refs]
