"""Chunks cross from one site to another, whole and in order."""

from __future__ import annotations

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
