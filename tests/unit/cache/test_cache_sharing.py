"""Many readers, little room, several tenants: what the facade promises."""

from __future__ import annotations

import asyncio

import pytest
from cache_sites import TENANT, World, content, filling, make_layout, make_refs, soon

from geokv.cache import ChunkRef, Entry
from geokv.errors import CacheError

LAYOUT = make_layout()


async def nothing(index: int, entry: Entry) -> None:
    return None


async def test_concurrent_fetches_of_one_chunk_are_merged(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 6)
    await a.put(refs)
    results = await asyncio.gather(*(b.pull(refs) for _ in range(5)))
    for outcome, got in results:
        assert got == [content(ref, LAYOUT) for ref in refs]
        assert outcome.remote_chunks + outcome.merged_chunks == 6
    assert sum(outcome.remote_chunks for outcome, _ in results) == 6
    assert sum(outcome.wire_bytes for outcome, _ in results) == 6 * LAYOUT.wire_bytes
    assert len(a.ops("serve")) == 6


async def test_a_merged_fetch_outlives_the_cancelling_of_the_first(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    first = asyncio.ensure_future(b.pull(refs))
    while b.cache.tier.stats()["reserved"] == 0:
        await asyncio.sleep(0)
    second = asyncio.ensure_future(b.pull(refs))
    await asyncio.sleep(0)
    first.cancel()
    outcome, got = await second
    assert got == [content(ref, LAYOUT) for ref in refs], outcome


async def test_eviction_while_sending_waits_for_the_pin(world: World) -> None:
    a = await world.site("a", LAYOUT, chunks=2)
    slow = {"streams": 1, "in_flight": 1}
    b = await world.site("b", LAYOUT, peers={"a": ("127.0.0.1", a.port)}, transport=slow)
    await b.cache.connect(soon())
    refs, more = make_refs(LAYOUT, 2), make_refs(LAYOUT, 4, seed=1)
    await a.put(refs)
    seen: list[bytes] = []
    served = a.cache._source.open

    def open_and_press(key: bytes, tenant: str, peer: str) -> object:
        answer = served(key, tenant, peer)  # pinned from here on
        for ref in more:
            if ref.key not in a.cache.tier:
                slot = None
                try:
                    slot = a.cache.tier.reserve(ref.key)
                    slot.view[:] = b"\xee" * LAYOUT.real_bytes
                except CacheError:
                    continue
                finally:
                    if slot is not None:
                        a.cache.tier.abort(slot)
        return answer

    a.cache._source.open = open_and_press  # type: ignore[method-assign,assignment]
    outcome, seen = await b.pull(refs)
    # The first was pinned and came whole; the pressure evicted the second: a clean miss.
    assert seen == [content(refs[0], LAYOUT)]
    assert outcome.misses == {"absent": 1}
    assert a.cache.tier.evictions >= 1
    assert a.ops("evict")[0]["key"] == refs[1].key.hex()
    await a.cache.quiesce(soon())


async def test_a_tier_full_of_pinned_chunks_gives_what_it_can(world: World) -> None:
    a = await world.site("a", LAYOUT)
    b = await world.site("b", LAYOUT, chunks=3, peers={"a": ("127.0.0.1", a.port)})
    await b.cache.connect(soon())
    refs, own = make_refs(LAYOUT, 5), make_refs(LAYOUT, 2, seed=9)
    await a.put(refs)
    await b.put(own)
    pins = [b.cache.tier.get(ref.key) for ref in own]
    outcome, got = await b.pull(refs)
    assert got == [content(refs[0], LAYOUT)]
    assert outcome.misses == {"full": 1}
    assert not await b.cache.store(own[0], nothing_to_fill)
    for pin in pins:
        assert pin is not None
        pin.release()
    outcome, got = await b.pull(refs)
    assert got[:3] == [content(ref, LAYOUT) for ref in refs[:3]]


def nothing_to_fill(view: memoryview) -> None:
    raise AssertionError("must not be asked to fill")


async def test_a_store_without_room_is_counted_and_does_not_fail(world: World) -> None:
    a = await world.site("a", LAYOUT, chunks=1)
    refs = make_refs(LAYOUT, 2)
    assert await a.cache.store(refs[0], filling(refs[0], LAYOUT))
    with a.cache.tier.get(refs[0].key):  # type: ignore[union-attr]
        assert not await a.cache.store(refs[1], nothing_to_fill)
    assert a.cache.misses == {"full": 1}
    assert not await a.cache.store(refs[0], nothing_to_fill)  # here already


async def test_a_store_whose_filling_fails_leaves_nothing(world: World) -> None:
    a = await world.site("a", LAYOUT, chunks=1)
    ref = make_refs(LAYOUT, 1)[0]

    def fail(view: memoryview) -> None:
        view[0] = 1
        raise ValueError("no such block")

    with pytest.raises(ValueError, match="no such block"):
        await a.cache.store(ref, fail)
    assert ref.key not in a.cache.tier and a.cache.tier.stats()["free"] == 1


async def test_tenants_do_not_see_each_other(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    mine = make_refs(LAYOUT, 3)
    await a.put(mine)
    theirs = make_refs(LAYOUT, 3, tenant="rival")  # the same tokens
    outcome, got = await b.pull(theirs)
    assert not got and outcome.usable_chunks == 0
    # Even with the right keys, the wrong name opens nothing, over the wire or at home.
    stolen = [ChunkRef(ref.key, ref.parent, ref.tokens, "rival") for ref in mine]
    outcome, got = await b.pull(stolen)
    assert not got and outcome.misses == {"foreign": 1}
    refusal = a.ops("serve")[-1]
    assert (refusal["cause"], refusal["sent_bytes"]) == ("foreign", 0)
    outcome, got = await a.pull(stolen)
    assert not got and outcome.misses == {"foreign": 1}
    assert (await b.pull(mine))[0].usable_chunks == 3


async def test_a_collision_of_keys_is_caught_by_the_tokens(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    ref = make_refs(LAYOUT, 1)[0]
    await a.put([ref])
    collided = ChunkRef(ref.key, ref.parent, tuple(reversed(ref.tokens)), TENANT)
    outcome, got = await b.pull([collided])
    assert not got and outcome.misses == {"mismatch": 1}
    outcome, got = await b.pull([ref])
    assert got == [content(ref, LAYOUT)]


async def test_a_record_of_an_earlier_life_is_stale(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    a.cache._source._incarnation -= 1
    outcome, got = await b.pull(refs)
    assert not got and outcome.misses == {"stale": 1}


async def test_local_chunks_are_handed_over_before_the_wire_delivers(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    await b.put(refs[:2])
    order: list[tuple[int, int]] = []

    async def take(index: int, entry: Entry) -> None:
        order.append((index, len(a.ops("serve"))))
        assert bytes(entry.view) == content(refs[index], LAYOUT)

    plan = await b.cache.lookup(refs, soon())
    assert (plan.local_chunks, plan.remote_chunks) == (2, 2)
    outcome = await b.cache.fetch(plan, soon(), take)
    assert order[:2] == [(0, 0), (1, 0)] and [index for index, _ in order] == [0, 1, 2, 3]
    assert (outcome.local_chunks, outcome.remote_chunks) == (2, 2)


async def test_what_on_chunk_raises_is_raised_and_leaks_nothing(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 8)
    await a.put(refs)

    async def fail(index: int, entry: Entry) -> None:
        raise KeyError("no block")

    plan = await b.cache.lookup(refs, soon())
    with pytest.raises(KeyError):
        await b.cache.fetch(plan, soon(), fail)
    stats = b.cache.tier.stats()
    assert stats["reserved"] == stats["pinned"] == 0
    assert (await b.pull(refs))[0].usable_chunks == 8
    plan = await b.cache.lookup(refs, soon())
    assert plan.local_chunks == 8
    with pytest.raises(KeyError):
        await b.cache.fetch(plan, soon(), fail)
    assert b.cache.tier.stats()["pinned"] == 0


async def test_evicted_chunks_leave_the_directory(world: World) -> None:
    a, b = await world.pair(LAYOUT, chunks=4)
    first, second = make_refs(LAYOUT, 4), make_refs(LAYOUT, 4, seed=3)
    await b.put(first)
    await b.put(second)
    await b.cache.quiesce(soon())
    table = a.cache.directory.table  # type: ignore[attr-defined]
    assert [bool(sites) for sites in table.locate([r.key for r in first + second])] == (
        [False] * 4 + [True] * 4
    )
    assert len(b.ops("evict")) == 4


async def test_the_third_site_gets_it_from_the_second_when_the_first_dropped(
    world: World,
) -> None:
    a, b = await world.pair(LAYOUT)
    c = await world.site(
        "c", LAYOUT, peers={"a": ("127.0.0.1", a.port), "b": ("127.0.0.1", b.port)}
    )
    await c.cache.connect(soon())
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    await b.pull(refs)
    await b.cache.quiesce(soon())
    await a.cache.drop()
    outcome, got = await c.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    assert outcome.sites == {"b": 3}


async def test_a_chunk_that_one_site_lost_comes_from_the_next(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    c = await world.site(
        "c", LAYOUT, peers={"a": ("127.0.0.1", a.port), "b": ("127.0.0.1", b.port)}
    )
    await c.cache.connect(soon())
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    await b.pull(refs)
    await b.cache.quiesce(soon())
    a.cache.tier.drop([refs[1].key])  # behind the directory's back
    outcome, got = await c.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    assert outcome.sites == {"a": 2, "b": 1} and not outcome.misses
    causes = [(e["source"], e["cause"]) for e in c.ops("fetch") if e["key"] == refs[1].key.hex()]
    assert causes == [("a", "absent"), ("b", "")]


async def test_every_operation_is_in_the_history(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    await b.pull(refs)
    await b.cache.quiesce(soon())
    await b.cache.drop()
    assert [event["op"] for event in a.events if event["op"] != "lookup"] == (
        ["store"] * 2 + ["publish"] * 2 + ["serve"] * 2
    )
    ops = [event["op"] for event in b.events]
    assert ops == ["lookup"] + ["fetch"] * 2 + ["publish"] * 2 + ["withdraw"] * 2 + ["drop"] * 2
    stored = {event["key"]: event["checksums"] for event in a.ops("store")}
    assert stored == {event["key"]: event["checksums"] for event in b.ops("fetch")}
    for event in a.events + b.events:
        assert event["t_ns"] > 0 and event["site"] in "ab"
