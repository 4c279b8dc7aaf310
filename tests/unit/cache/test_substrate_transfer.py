"""Pushes, priorities, caps, groups and cancelling over our own connections."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from cache_sites import Site, World, content, filling, make_layout, make_refs, soon

from geokv.cache import ChunkLayout, ChunkRef
from geokv.cache.substrate.tcp.answers import ChunkAnswers
from geokv.cache.substrate.transport import BACKGROUND, FETCH
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError

LAYOUT = make_layout()
BIG = make_layout(wire_bytes_per_token=65536)  # 2 MiB a chunk on the wire


async def three(world: World, **more: Any) -> tuple[Site, Site, Site]:
    a, b = await world.pair(LAYOUT, **more)
    c = await world.site("c", LAYOUT, peers={"a": ("127.0.0.1", a.port)}, **more)
    a.cache.add_peer("c", "127.0.0.1", c.port)
    await c.cache.connect(soon())
    await a.cache.connect(soon())
    return a, b, c


async def asking(
    world: World,
    chunks: int,
    layout: ChunkLayout = BIG,
    caps: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[Site, list[ChunkRef]]:
    """Site b, which has joined a (with ``caps``), and the chunks that lie at a.

    Args:
        more: settings of b's transport.
    """
    a = await world.site("a", layout, transport=caps)
    b = await world.site("b", layout, peers={"a": ("127.0.0.1", a.port)}, transport=more)
    await b.cache.connect(soon())
    refs = make_refs(layout, chunks)
    await a.put(refs)
    return b, refs


# -- push ------------------------------------------------------------------------


async def test_a_push_is_readable_and_published_at_all_who_take_it(world: World) -> None:
    a, b, c = await three(world)
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    before = a.cache.tier.hits
    for ref in refs:
        assert await a.cache.push(["b", "c"], ref, soon()) == {"b": None, "c": None}
    assert a.cache.tier.hits - before == 3  # read once for both
    assert a.cache.tier.stats()["pinned"] == 0
    for site in (b, c):
        await site.cache.quiesce(soon())
        outcome, got = await site.pull(refs)
        assert got == [content(ref, LAYOUT) for ref in refs]
        assert outcome.local_chunks == 3
        assert [e["cause"] for e in site.ops("pushed")] == [""] * 3
    table = a.cache.directory.table  # type: ignore[attr-defined]
    assert all(set(sites) == {"a", "b", "c"} for sites in table.locate([r.key for r in refs]))


async def test_a_push_is_refused_with_its_cause(world: World) -> None:
    a, b = await world.pair(LAYOUT, chunks=2)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    await b.put(refs[:1])
    (ref, other) = refs
    result = await a.cache.push(["b"], ref, soon())
    assert result["b"] is not None and result["b"].cause == "present"
    pins = [b.cache.tier.get(ref.key)]
    more = make_refs(LAYOUT, 1, seed=5)
    await b.put(more)
    pins.append(b.cache.tier.get(more[0].key))
    result = await a.cache.push(["b"], other, soon())
    assert result["b"] is not None and result["b"].cause == "full"
    for pin in pins:
        assert pin is not None
        pin.release()
    absent = make_refs(LAYOUT, 1, seed=9)[0]
    result = await a.cache.push(["b"], absent, soon())
    assert result["b"] is not None and result["b"].cause == "absent"
    assert b.cache.stats()["pushed"] == {"present": 1, "full": 1}


async def test_a_pushed_chunk_whose_key_is_not_its_chain_is_refused(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    ref = make_refs(LAYOUT, 1)[0]
    forged = ChunkRef(bytes(16), ref.parent, ref.tokens, ref.tenant)
    await a.put([forged])
    result = await a.cache.push(["b"], forged, soon())
    assert result["b"] is not None and result["b"].cause == "mismatch"
    assert forged.key not in b.cache.tier


async def test_damage_on_the_way_of_a_push_leaves_nothing(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    ref = make_refs(LAYOUT, 1)[0]
    await a.put([ref])
    a.cache.tier.exposed(ref.key)[77] ^= 4
    result = await a.cache.push(["b"], ref, soon())
    assert result["b"] is not None and result["b"].cause == "corrupt"
    assert ref.key not in b.cache.tier and b.cache.tier.stats()["reserved"] == 0
    a.cache.tier.exposed(ref.key)[77] ^= 4
    assert await a.cache.push(["b"], ref, soon()) == {"b": None}


async def test_a_push_to_a_site_that_dies_ends_and_frees_both_ends(world: World) -> None:
    big = make_layout(wire_bytes_per_token=2**20)  # 32 MiB: the kernel cannot hold it
    a, b = await world.pair(big, chunks=2)
    ref = make_refs(big, 1)[0]
    await a.put([ref])
    pushing = asyncio.ensure_future(a.cache.push(["b"], ref, soon()))
    while not b.cache.tier.stats()["reserved"]:
        await asyncio.sleep(0.0005)
    await b.cache.transport.close()
    result = await pushing
    assert result["b"] is not None and result["b"].cause == "unreachable"
    assert b.cache.tier.stats()["reserved"] == 0
    assert a.cache.tier.stats()["pinned"] == 0


async def test_a_cancelled_push_frees_both_ends(world: World) -> None:
    big = make_layout(wire_bytes_per_token=2**20)
    a, b = await world.pair(big, chunks=2)
    ref = make_refs(big, 1)[0]
    await a.put([ref])
    for wait in (0.0, 0.001, 0.004, 0.01):
        pushing = asyncio.ensure_future(a.cache.push(["b"], ref, soon()))
        await asyncio.sleep(wait)
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)
        assert a.cache.tier.stats()["pinned"] == 0
        deadline = soon(2)
        while b.cache.tier.stats()["reserved"] and now_ns() < deadline:
            await asyncio.sleep(0.001)
        assert b.cache.tier.stats()["reserved"] == 0
        b.cache.tier.drop()
    assert await a.cache.push(["b"], ref, soon()) == {"b": None}


# -- priorities ------------------------------------------------------------------


async def test_what_a_request_waits_for_passes_what_nobody_waits_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    b, refs = await asking(world, 12, streams=1, in_flight=8)
    answered: list[bytes] = []
    chunk = ChunkAnswers._chunk

    def noted(self: ChunkAnswers, get: Any) -> None:
        answered.append(get.key)
        chunk(self, get)

    monkeypatch.setattr(ChunkAnswers, "_chunk", noted)
    memory = [memoryview(bytearray(BIG.real_bytes)) for _ in refs]
    submit = b.cache.transport.submit
    transfers = [
        submit("a", ref, into, soon(), priority=BACKGROUND)
        for ref, into in zip(refs[:-1], memory, strict=False)
    ]
    while not answered:
        await asyncio.sleep(0.0002)
    urgent = submit("a", refs[-1], memory[-1], soon(), priority=FETCH)
    already = len(answered)
    await urgent.done
    await asyncio.gather(*(one.done for one in transfers))
    # The one being sent when the question arrived, and perhaps one that began meanwhile.
    assert answered.index(refs[-1].key) <= already + 1
    assert already < 8, "all had been answered before"
    assert sorted(answered) == sorted(ref.key for ref in refs)
    assert bytes(memory[-1]) == content(refs[-1], BIG)


async def test_a_full_stripe_still_takes_what_is_more_urgent(world: World) -> None:
    b, refs = await asking(world, 9, LAYOUT, streams=1, in_flight=2)
    order: list[int] = []
    memory = [memoryview(bytearray(LAYOUT.real_bytes)) for _ in refs]
    transfers = []
    for i, (ref, into) in enumerate(zip(refs, memory, strict=True)):
        priority = FETCH if i == 8 else BACKGROUND
        transfer = b.cache.transport.submit("a", ref, into, soon(), priority=priority)
        transfer.done.add_done_callback(lambda _, i=i: order.append(i))
        transfers.append(transfer)
    assert [one.state for one in transfers].count("active") == 3
    await asyncio.gather(*(one.done for one in transfers))
    # Two were out before it.
    assert order.index(8) <= 2, order


# -- layer groups ----------------------------------------------------------------


class Layers:
    """Takes pieces; knows what has come of each chunk and in which order."""

    def __init__(self, refs: list[ChunkRef]) -> None:
        self.refs = refs
        self.pieces: list[tuple[int, int]] = []
        self.groups: list[tuple[int, int]] = []

    async def on_piece(self, chunk: int, group: int, kv: memoryview) -> None:
        assert bytes(kv) == content(self.refs[chunk], LAYOUT)[LAYOUT.group_slices[group]]
        self.pieces.append((group, chunk))

    async def on_group(self, group: int, chunks: int) -> None:
        assert self.pieces[-chunks:] == [(group, chunk) for chunk in range(chunks)]
        self.groups.append((group, chunks))


async def test_group_major_brings_all_first_groups_first(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 10)
    await a.put(refs)
    await b.put(refs[2:4])  # local ones among them
    layers = Layers(refs)
    plan = await b.cache.lookup(refs, soon())
    outcome = await b.cache.fetch_layered(plan, soon(), layers.on_piece, layers.on_group)
    assert layers.groups == [(0, 10), (1, 10)] and layers.pieces == sorted(layers.pieces)
    assert (outcome.usable_chunks, outcome.remote_chunks, outcome.local_chunks) == (10, 8, 2)
    assert outcome.wire_bytes == 8 * LAYOUT.wire_bytes and not outcome.misses
    # They are whole chunks now, for everybody.
    await b.cache.quiesce(soon())
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    b.cache.check_integrity(deep=True)


async def test_a_chunk_is_not_readable_before_its_last_group(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    layers = Layers(refs)
    readable: list[int] = []

    async def on_group(group: int, chunks: int) -> None:
        await layers.on_group(group, chunks)
        readable.append(sum(ref.key in b.cache.tier for ref in refs))

    plan = await b.cache.lookup(refs, soon())
    await b.cache.fetch_layered(plan, soon(), layers.on_piece, on_group)
    assert readable == [0, 0]
    assert all(ref.key in b.cache.tier for ref in refs)


async def test_a_chunk_lost_between_its_groups_ends_the_prefix(world: World) -> None:
    a, b = await world.pair(LAYOUT, transport={"streams": 1, "in_flight": 1})
    refs = make_refs(LAYOUT, 6)
    await a.put(refs)
    layers = Layers(refs)

    async def on_group(group: int, chunks: int) -> None:
        await layers.on_group(group, chunks)

    async def on_piece(chunk: int, group: int, kv: memoryview) -> None:
        await layers.on_piece(chunk, group, kv)
        if (chunk, group) == (1, 0):
            a.cache.tier.drop([refs[3].key, refs[5].key])

    plan = await b.cache.lookup(refs, soon())
    outcome = await b.cache.fetch_layered(plan, soon(), on_piece, on_group)
    assert outcome.misses == {"absent": 1}
    assert outcome.usable_chunks == 3 and layers.groups[-1] == (1, 3)
    assert b.cache.tier.stats()["reserved"] == 0
    assert [ref.key in b.cache.tier for ref in refs] == [True] * 3 + [False] * 3


async def test_a_corrupt_group_ends_the_prefix_and_nothing_of_it_stays(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 5)
    await a.put(refs)
    a.cache.tier.exposed(refs[2].key)[LAYOUT.group_slices[1].start] ^= 1
    layers = Layers(refs)
    plan = await b.cache.lookup(refs, soon())
    outcome = await b.cache.fetch_layered(plan, soon(), layers.on_piece, layers.on_group)
    assert outcome.misses == {"corrupt": 1} and layers.groups == [(0, 5), (1, 2)]
    assert [ref.key in b.cache.tier for ref in refs] == [True, True, False, False, False]
    a.cache.tier.exposed(refs[2].key)[LAYOUT.group_slices[1].start] ^= 1


async def test_groups_of_two_makings_of_a_chunk_are_not_put_together(world: World) -> None:
    a, b = await world.pair(LAYOUT, transport={"streams": 1, "in_flight": 1})
    refs = make_refs(LAYOUT, 6)
    await a.put(refs)
    layers = Layers(refs)

    def fill(view: memoryview) -> None:
        view[:] = bytes(len(view))

    async def on_group(group: int, chunks: int) -> None:
        await layers.on_group(group, chunks)
        if group == 0:  # of the last chunk the first group has come and the second has not
            a.cache.tier.drop([refs[5].key])
            assert await a.cache.store(refs[5], fill, publish=False)

    plan = await b.cache.lookup(refs, soon())
    outcome = await b.cache.fetch_layered(plan, soon(), layers.on_piece, on_group)
    assert outcome.misses == {"stale": 1} and layers.groups == [(0, 6), (1, 5)]
    assert [ref.key in b.cache.tier for ref in refs] == [True] * 5 + [False]


async def test_a_cancelled_layered_fetch_leaves_nothing(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 12)
    await a.put(refs)
    for steps in range(0, 40, 3):
        layers = Layers(refs)
        plan = await b.cache.lookup(refs, soon())
        work = b.cache.fetch_layered(plan, soon(), layers.on_piece, layers.on_group)
        fetching = asyncio.ensure_future(work)
        for _ in range(steps):
            await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
        stats = b.cache.tier.stats()
        assert stats["reserved"] == stats["pinned"] == 0
        b.cache.tier.drop()
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]


# -- cancelling ------------------------------------------------------------------


async def test_memory_of_a_stopped_transfer_is_never_written_again(world: World) -> None:
    b, refs = await asking(world, 4, streams=1, in_flight=4)
    rng = random.Random(11)
    for _ in range(25):
        memory = [memoryview(bytearray(BIG.real_bytes)) for _ in refs]
        transport = b.cache.transport
        transfers = [
            transport.submit("a", ref, into, soon()) for ref, into in zip(refs, memory, strict=True)
        ]
        for _ in range(rng.randrange(12)):
            await asyncio.sleep(0)
        await asyncio.sleep(rng.choice([0, 0, 0.0005, 0.002]))
        chosen = rng.choice(transfers)
        was = chosen.state
        transport.stop(chosen)
        place = memory[transfers.index(chosen)]
        seen = bytes(place)
        ends = await asyncio.gather(*(one.done for one in transfers), return_exceptions=True)
        await asyncio.sleep(0.003)
        assert bytes(place) == seen, was
        if was in {"queued", "active"}:
            end = ends[transfers.index(chosen)]
            assert isinstance(end, FetchError) and end.cause == "cancelled"
        for ref, into, end in zip(refs, memory, ends, strict=True):
            assert isinstance(end, BaseException) or bytes(into) == content(ref, BIG)


async def test_memory_of_another_size_is_refused(world: World) -> None:
    _, b = await world.pair(LAYOUT)
    ref = make_refs(LAYOUT, 1)[0]
    for size, group in ((1, -1), (LAYOUT.real_bytes, 0), (LAYOUT.real_bytes + 1, -1)):
        with pytest.raises(CacheError, match="bytes of memory"):
            into = memoryview(bytearray(size))
            b.cache.transport.submit("a", ref, into, soon(), group=group)


# -- caps ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "caps", [{"tenant_caps": {"acme": 80_000_000}}, {"link_caps": {"b": 80_000_000}}]
)
async def test_a_cap_holds_what_goes_out(world: World, caps: dict[str, Any]) -> None:
    b, refs = await asking(world, 3, caps=caps)
    start = now_ns()
    into = [memoryview(bytearray(BIG.real_bytes)) for _ in refs]
    transfers = [
        b.cache.transport.submit("a", ref, view, soon())
        for ref, view in zip(refs, into, strict=True)
    ]
    await asyncio.gather(*(one.done for one in transfers))
    seconds = (now_ns() - start) / 1e9
    # 6 MiB less one burst at 80 Mbit/s, over four connections.
    assert 0.6 <= seconds < 1.5
    assert [bytes(view) for view in into] == [content(ref, BIG) for ref in refs]


async def test_what_has_no_cap_is_not_held(world: World) -> None:
    caps = {"tenant_caps": {"rival": 1000}, "link_caps": {"c": 1000}}
    b, refs = await asking(world, 3, caps=caps)
    into = memoryview(bytearray(BIG.real_bytes))
    async with asyncio.timeout(2):
        for ref in refs:
            await b.cache.transport.submit("a", ref, into, soon()).done


async def test_a_capped_push_is_held_too(world: World) -> None:
    a, b = await world.pair(BIG)
    await a.cache.close()
    a = await world.site(
        "c", BIG, peers={"b": ("127.0.0.1", b.port)}, transport={"link_caps": {"b": 160_000_000}}
    )
    ref = make_refs(BIG, 1)[0]
    assert await a.cache.store(ref, filling(ref, BIG), publish=False)
    start = now_ns()
    assert await a.cache.push(["b"], ref, soon()) == {"b": None}
    assert (now_ns() - start) / 1e9 >= (2 * 2**20 - 2**18) * 8 / 160e6
