"""Doing a thing twice, or half: nothing changes, nothing is fetched again that was whole, and
nothing stays pinned for who is gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cache_sites import Site, World, content, filling, make_layout, make_refs, soon

from geokv.cache import DiskTier, Entry
from geokv.cache.membership import MembershipSettings
from geokv.cache.substrate.tcp.sockets import SocketOptions
from geokv.clock import now_ns

LAYOUT = make_layout()
NARROW = {
    "streams": 1,
    "in_flight": 32,
    "options": SocketOptions(send_buffer_bytes=32768, receive_buffer_bytes=32768),
}
"""So that an answer nobody reads is soon stuck."""


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    ends = now_ns() + seconds * 1e9
    while not true():
        assert now_ns() < ends, "waited in vain"
        await asyncio.sleep(0.002)


def sent_whole(site: Site) -> Counter[str]:
    return Counter(event["key"] for event in site.ops("serve") if not event["cause"])


async def test_a_fetch_cut_in_the_middle_goes_on_where_it_was(world: World) -> None:
    a, b, proxy = await world.behind_proxy(LAYOUT, transport={"streams": 1, "in_flight": 2})
    refs = make_refs(LAYOUT, 12)
    await a.put(refs)
    proxy.arm("cut", 5 * LAYOUT.wire_bytes)
    outcome, got = await b.pull(refs)
    assert 0 < len(got) < 12 and outcome.misses == {"unreachable": 1}
    await b.cache.quiesce(soon())
    whole = {ref.key for ref in refs if ref.key in b.cache.tier}
    assert len(whole) >= len(got)
    before = sent_whole(a)
    proxy.disarm()
    await until(lambda: b.cache.transport.up("a"))
    outcome, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    assert outcome.remote_chunks == 12 - len(whole)
    again = sent_whole(a) - before
    assert not {key.hex() for key in whole} & set(again) and len(again) == 12 - len(whole)
    await proxy.close()


async def test_a_chunk_pushed_or_stored_twice_is_there_once(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    (ref,) = make_refs(LAYOUT, 1)
    await a.put([ref])
    ends = [await a.cache.push(["b"], ref, soon()) for _ in range(3)]
    assert [end["b"] and end["b"].cause for end in ends] == [None, "present", "present"]
    both = await asyncio.gather(*(a.cache.push(["b"], ref, soon()) for _ in range(2)))
    assert all(end["b"] is not None for end in both)
    place, header = b.cache.tier.place(ref.key), b.cache.tier.header(ref.key)

    def other(view: memoryview) -> None:
        view[:] = bytes(len(view))

    assert not await b.cache.store(ref, other)
    assert (b.cache.tier.place(ref.key), b.cache.tier.header(ref.key)) == (place, header)
    _, got = await b.pull([ref])
    assert got == [content(ref, LAYOUT)]
    assert b.cache.tier.stats()["cached"] == 1


async def test_many_who_want_the_same_have_it_sent_once(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 6)
    await a.put(refs)
    for _, got in await asyncio.gather(*(b.pull(refs) for _ in range(5))):
        assert got == [content(ref, LAYOUT) for ref in refs]
    assert set(sent_whole(a).values()) == {1}


async def test_nothing_stays_pinned_for_a_peer_that_is_down(world: World) -> None:
    a, b, proxy = await world.behind_proxy(
        LAYOUT,
        a={"membership": MembershipSettings(0.02, 3, 0.05), "lease_s": 60.0},
        transport=NARROW,
    )
    refs = make_refs(LAYOUT, 24)
    await a.put(refs)
    # b does not read, and its windows fill: an answer is under way and cannot end.
    proxy.frozen = True
    plan = await b.cache.lookup(refs, soon())

    async def take(index: int, entry: Entry) -> None:
        return None

    fetching = asyncio.ensure_future(b.cache.fetch(plan, soon(20), take))
    await until(lambda: a.cache.leases > 0)
    # b sends no beats: it is down for a, whose pins must not wait for the lease.
    await until(lambda: not a.cache.transport.up("b"))
    await until(lambda: a.cache.leases == 0)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    proxy.frozen = False
    await proxy.close()


async def test_what_was_brought_up_for_who_hung_up_is_let_go(world: World, tmp_path: Path) -> None:
    disk = DiskTier(LAYOUT, 64 * LAYOUT.wire_bytes, tmp_path)
    more = {"disk": disk, "spare": 8, "write": "write-through", "lease_s": 60.0}
    a, b, proxy = await world.behind_proxy(LAYOUT, a=more, transport=NARROW)
    refs = make_refs(LAYOUT, 24)
    for ref in refs:
        assert await a.cache.store(ref, filling(ref, LAYOUT))
        await a.cache.quiesce(soon())
    await a.cache.drop("dram")
    proxy.frozen = True
    plan = await b.cache.lookup(refs, soon())

    async def take(index: int, entry: Entry) -> None:
        return None

    fetching = asyncio.ensure_future(b.cache.fetch(plan, soon(20), take))
    await until(lambda: a.cache._source.held > 2)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    await b.cache.transport.close()
    await until(lambda: a.cache.leases == 0)
    proxy.frozen = False
    await proxy.close()
