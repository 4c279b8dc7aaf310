"""Copies that a site makes of its chunks at others, and what they give way to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cache_sites import Site, World, content, filling, make_layout, make_refs, soon, world

from geokv.cache.replicating import Replication
from geokv.cache.substrate.tcp.way import RightOfWay

__all__ = ["world"]

LAYOUT = make_layout()
BIG = make_layout(wire_bytes_per_token=65536)  # 2 MiB a chunk on the wire


async def three(world: World, what: Replication, **more: Any) -> tuple[Site, Site, Site]:
    """Sites that all know each other; each makes copies as ``what`` says."""
    made: dict[str, Site] = {}
    for name in "abc":
        own = Replication(tuple(site for site in what.to if site != name), what.when)
        peers = {other: ("127.0.0.1", site.port) for other, site in made.items()}
        made[name] = await world.site(name, LAYOUT, peers=peers, replication=own, **more)
        for other in peers:
            made[other].cache.add_peer(name, "127.0.0.1", made[name].port)
    for site in made.values():
        await site.cache.connect(soon())
    return made["a"], made["b"], made["c"]


async def test_what_is_published_is_copied_once_to_all_and_by_nobody_else(world: World) -> None:
    a, b, c = await three(world, Replication(("a", "b", "c")))
    refs = make_refs(LAYOUT, 4)
    before = a.cache.tier.hits
    await a.put(refs)
    for site in (a, b, c):
        await site.cache.quiesce(soon())
    assert a.cache.tier.hits - before == 4  # read once for both
    assert a.cache.stats()["replicated"] == {"ok": 8}
    assert b.cache.stats()["replicated"] == c.cache.stats()["replicated"] == {}
    assert [(e["key"], e["target"], e["cause"]) for e in a.ops("replicate")] == [
        (ref.key.hex(), site, "") for ref in refs for site in "bc"
    ]
    for site in (b, c):
        outcome, got = await site.pull(refs)
        assert got == [content(ref, LAYOUT) for ref in refs]
        assert (outcome.local_chunks, outcome.remote_chunks) == (4, 0)
    # Told twice, or used again: one copy was made and that is it.
    await a.cache.publish([ref.key for ref in refs])
    await a.cache.quiesce(soon())
    assert a.cache.stats()["replicated"] == {"ok": 8}


async def test_hot_chunks_are_copied_when_they_are_used_again(world: World) -> None:
    a, b, c = await three(world, Replication(("c",), "hot"))
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    await a.cache.quiesce(soon())
    assert a.cache.stats()["replicated"] == {}
    await b.pull(refs[:2])
    for site in (a, b, c):
        await site.cache.quiesce(soon())
    assert [ref.key in c.cache.tiers for ref in refs] == [True, True, False, False]
    assert a.cache.stats()["replicated"] == {"ok": 2}
    assert b.cache.stats()["replicated"] == {}


async def test_a_copy_that_is_not_taken_is_counted_with_its_cause(world: World) -> None:
    a, b, _ = await three(world, Replication(("b", "c")))
    refs = make_refs(LAYOUT, 2)
    await b.put(refs[:1])
    await b.cache.quiesce(soon())
    await a.cache.store(refs[1], filling(refs[1], LAYOUT), publish=False)
    await b.cache.close()
    await a.cache.publish([refs[1].key])
    await a.cache.quiesce(soon(10))
    assert a.cache.stats()["replicated"] == {"unreachable": 1, "ok": 1}
    causes = {e["target"]: e["cause"] for e in a.ops("replicate")}
    assert causes == {"b": "unreachable", "c": ""}


async def test_what_goes_before_its_turn_is_not_copied(world: World) -> None:
    a, _, c = await three(world, Replication(("c",)))
    refs = make_refs(LAYOUT, 3)
    for ref in refs:
        await a.cache.store(ref, filling(ref, LAYOUT), publish=False)
    publishing = asyncio.ensure_future(a.cache.publish([ref.key for ref in refs]))
    await a.cache.drop(keys=[refs[2].key])
    await publishing
    await a.cache.quiesce(soon())
    assert a.cache.stats()["replicated"] == {"ok": 2}
    assert refs[2].key not in c.cache.tiers


async def test_what_is_asked_on_a_connection_in_mid_push_waits_for_its_end(world: World) -> None:
    """A slow push has the only connection, and a chunk is asked for behind it."""
    caps = {"link_caps": {"b": 160_000_000}, "streams": 1}
    b = await world.site("b", BIG, transport={"streams": 1}, directory=None)
    a = await world.site("a", BIG, peers={"b": ("127.0.0.1", b.port)}, transport=caps)
    b.cache.add_peer("a", "127.0.0.1", a.port)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    mine, theirs = make_refs(BIG, 2)
    await a.cache.store(mine, filling(mine, BIG), publish=False)
    await b.cache.store(theirs, filling(theirs, BIG), publish=False)
    pushing = asyncio.ensure_future(a.cache.push(["b"], mine, soon()))
    await asyncio.sleep(0.03)
    into = memoryview(bytearray(BIG.real_bytes))
    transfer = a.cache.transport.submit("b", theirs, into, soon())
    assert not pushing.done()
    await transfer.done
    assert into == content(theirs, BIG)
    assert await pushing == {"b": None}


class Line:
    """What a connection has still to have confirmed."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self) -> int:
        return self.left


async def test_way_is_given_until_the_last_byte_has_been_confirmed() -> None:
    way, line = RightOfWay(), Line()
    await asyncio.wait_for(way.clear(), 1)
    way.enter()
    way.enter()
    line.left = 5
    waiting = [asyncio.ensure_future(way.clear()) for _ in range(2)]
    await asyncio.sleep(0.02)
    way.leave(line)
    await asyncio.sleep(0.02)
    assert not any(one.done() for one in waiting)
    way.leave(line)
    await asyncio.sleep(0.02)
    assert not any(one.done() for one in waiting)  # in the kernel's hands is not there
    line.left = 0
    await asyncio.wait_for(asyncio.gather(*waiting), 1)


async def test_who_comes_in_between_is_waited_for_too() -> None:
    way, line = RightOfWay(), Line()
    way.enter()
    waiting = asyncio.ensure_future(way.clear())
    await asyncio.sleep(0)
    way.leave(line)
    way.enter()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.05)
    way.leave(line)
    await asyncio.wait_for(waiting, 1)
