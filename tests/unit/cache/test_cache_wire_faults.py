"""Damage on the wire: every flipped bit, cut or stall is a counted miss, never a wrong
byte and never a hang (fault reports F05, F06, F08, F10, F11)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from cache_proxy import Proxy
from cache_sites import SECRET, Site, World, content, make_layout, make_refs, soon

from geokv.cache import CentralDirectory, ChunkRef
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, MAC_BYTES
from geokv.errors import FetchError

LAYOUT = make_layout()
REAL, FILLER = LAYOUT.group_bytes[0]
ID_BYTES = 8
Start = Callable[..., Coroutine[Any, Any, tuple[Site, Site, Proxy, list[ChunkRef]]]]


@pytest.fixture
async def start(world: World) -> AsyncIterator[Start]:
    """Site a behind a proxy, site b with one data stream through it; the directory is
    at b, so that only payload passes the proxy once all is connected."""
    proxies: list[Proxy] = []

    async def make(chunks: int = 3, **transport: Any) -> tuple[Site, Site, Proxy, list[ChunkRef]]:
        transport = {"streams": 1, "in_flight": 1, **transport}
        a, b, proxy = await world.behind_proxy(LAYOUT, transport=transport)
        proxies.append(proxy)
        refs = make_refs(LAYOUT, chunks)
        await a.put(refs)
        return a, b, proxy, refs

    yield make
    for proxy in proxies:
        await proxy.close()


def head_bytes(a: Site, ref: ChunkRef) -> int:
    """What goes over the wire before a chunk's payload."""
    with a.cache.tier.get(ref.key) as entry:  # type: ignore[union-attr]
        packed = entry.header.stamped(entry.generation, 1, 1).pack()
    return HEAD_BYTES + ID_BYTES + len(packed) + MAC_BYTES


PLACES = {
    "first real byte": (0, "payload"),
    "middle of the real KV": (REAL // 2, "payload"),
    "first filler byte": (REAL, "payload"),
    "last filler byte of the group": (REAL + FILLER - 1, "payload"),
    "real KV of the second group": (REAL + FILLER + 7, "payload"),
    "very last byte": (LAYOUT.wire_bytes - 1, "payload"),
    "frame kind": (0, "frame"),
    "frame length": (6, "frame"),
    "sequence number": (12, "frame"),
    "record header": (HEAD_BYTES + ID_BYTES + 3, "frame"),
    "checksum in the record header": (HEAD_BYTES + ID_BYTES + 130, "frame"),
    "mac": (-1, "payload"),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_flipped_bit_is_a_corrupt_chunk(start: Start, place: str) -> None:
    a, b, proxy, refs = await start()
    offset, base = PLACES[place]
    proxy.arm("flip", offset + (head_bytes(a, refs[0]) if base == "payload" else 0))
    outcome, got = await b.pull(refs)
    assert proxy.fired == 1
    assert got == [] and outcome.usable_chunks == 0
    assert outcome.misses == {"corrupt": 1} and b.cache.misses == {"corrupt": 1}
    assert refs[0].key not in b.cache.tier
    proxy.disarm()
    await b.cache.quiesce(soon())
    outcome, got = await b.pull(refs)  # the next one is well again
    assert got == [content(ref, LAYOUT) for ref in refs]


async def test_a_flipped_bit_in_the_third_chunk_leaves_two(start: Start) -> None:
    a, b, proxy, refs = await start(chunks=5, in_flight=4)
    record = head_bytes(a, refs[0]) + LAYOUT.wire_bytes
    proxy.arm("flip", 2 * record + head_bytes(a, refs[0]) + REAL + 5)
    outcome, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs[:2]]
    assert (outcome.usable_chunks, outcome.misses) == (2, {"corrupt": 1})
    await b.cache.quiesce(soon())
    # Those that were already asked for were let in, the damaged one was not.
    assert [ref.key in b.cache.tier for ref in refs[:4]] == [True, True, False, True]


@pytest.mark.parametrize("offset", [0, 10, 500, 40_000, LAYOUT.wire_bytes])
async def test_a_cut_connection_is_a_miss(start: Start, offset: int) -> None:
    _, b, proxy, refs = await start()
    proxy.arm("cut", offset)
    outcome, got = await b.pull(refs)
    assert proxy.fired == 1
    assert got == [] and outcome.misses == {"unreachable": 1}
    assert b.cache.tier.stats()["reserved"] == 0
    proxy.disarm()
    outcome, got = await b.pull(refs)  # connects again by itself
    assert got == [content(ref, LAYOUT) for ref in refs]


@pytest.mark.parametrize("offset", [0, 30_000])
async def test_a_stalled_peer_costs_the_deadline_and_no_more(start: Start, offset: int) -> None:
    a, b, proxy, refs = await start()
    proxy.arm("stall", offset)
    started = time.monotonic()
    outcome, got = await b.pull(refs, seconds=0.3)
    assert 0.25 < time.monotonic() - started < 1.0
    assert got == [] and outcome.misses == {"timeout": 1}
    await b.cache.quiesce(soon())
    assert b.cache.tier.stats()["reserved"] == 0
    await asyncio.sleep(0.05)
    assert a.cache.tier.stats()["pinned"] == 0  # the server noticed and let go


async def test_a_dead_peer_costs_only_the_first_requests_their_deadline(start: Start) -> None:
    _, b, proxy, refs = await start()
    took = []
    for _ in range(8):
        proxy.arm("stall", 0)
        started = time.monotonic()
        outcome, _ = await b.pull(refs, seconds=0.2)
        took.append(time.monotonic() - started)
        assert outcome.usable_chunks == 0
    assert sum(one > 0.15 for one in took) <= 4
    assert b.cache.misses["unreachable"] >= 4


async def test_a_lease_that_ends_before_the_last_byte_is_a_miss(start: Start) -> None:
    a, b, proxy, refs = await start()
    a.cache._source._lease_ns = 30_000_000
    proxy.arm("slow", 100)
    outcome, got = await b.pull(refs)
    assert got == [] and outcome.misses == {"lease": 1}
    assert a.cache.tier.stats()["pinned"] == 0


async def test_a_reader_that_stops_reading_holds_a_pin_no_longer_than_the_lease(
    world: World,
) -> None:
    """F13: more bytes than all buffers on the way hold, and nobody takes them."""
    big = make_layout(chunk_tokens=16, wire_bytes_per_token=2**20)
    a, b, proxy = await world.behind_proxy(big, a={"lease_s": 0.1}, chunks=2)
    ref = make_refs(big, 1)[0]
    await a.put([ref])
    proxy.arm("stall", 1000)
    task = asyncio.ensure_future(b.pull([ref], seconds=0.6))
    while not proxy.fired:
        await asyncio.sleep(0.001)
    assert a.cache.tier.stats()["pinned"] == 1
    await asyncio.sleep(0.2)
    assert a.cache.tier.stats()["pinned"] == 0
    assert a.cache.stats()["served"] == {"lease": 1}
    outcome, got = await task
    assert not got and outcome.misses == {"timeout": 1}
    await proxy.close()


async def test_cancelling_in_mid_record_frees_everything(start: Start) -> None:
    _, b, proxy, refs = await start()
    proxy.arm("stall", 30_000)
    task = asyncio.ensure_future(b.pull(refs, seconds=30))
    while not proxy.fired:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert b.cache.tier.stats()["reserved"] == 0
    assert "0" not in b.cache.stats()["transport"]["peers"]["a"]["streams"]
    proxy.disarm()
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]


async def test_a_peer_killed_in_mid_answer_is_unreachable(world: World) -> None:
    """kill -9 of a real process that serves."""
    server = textwrap.dedent(
        """
        import asyncio, sys
        from cache_sites import World, make_layout, make_refs
        from geokv.cache import CentralDirectory
        async def main():
            site = await World().site("a", make_layout(), directory=CentralDirectory("a"))
            await site.put(make_refs(make_layout(), 30))
            print(site.port, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", server],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        proxy = await Proxy(port).start()
        more = {"transport": {"streams": 1, "in_flight": 2}, "directory": CentralDirectory("a")}
        b = await world.site("b", LAYOUT, peers={"a": ("127.0.0.1", proxy.port)}, **more)
        await b.cache.connect(soon())
        refs = make_refs(LAYOUT, 30)
        plan = await b.cache.lookup(refs, soon())
        assert plan.remote_chunks == 30
        proxy.arm("slow", 1000)

        async def take(*_: object) -> None:
            return None

        task = asyncio.ensure_future(b.cache.fetch(plan, soon(5), take))
        while not proxy.fired:
            await asyncio.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(5)
        started = time.monotonic()
        outcome = await task
        assert time.monotonic() - started < 2
        assert outcome.misses == {"unreachable": 1} and outcome.usable_chunks < 30
        with pytest.raises(FetchError):
            await b.cache.transport.connect("a", soon(0.3))
        assert not b.cache.transport.up("a")
        assert (await b.cache.lookup(refs, soon(0.3))).remote_chunks == 0
        await proxy.close()
    finally:
        process.kill()
        process.wait(5)
        process.stdout.close()  # type: ignore[union-attr]


async def test_a_peer_that_restarts_on_its_address_ten_times(world: World) -> None:
    """F20: no request to the new life uses anything of the old one."""
    b = await world.site("b", LAYOUT, directory=CentralDirectory("b"))
    refs = make_refs(LAYOUT, 2)
    port, lives = 0, []
    for life in range(10):
        a = await world.site(
            "a",
            LAYOUT,
            port=port,
            directory=CentralDirectory("b"),
            peers={"b": ("127.0.0.1", b.port)},
        )
        port = a.port
        if life == 0:
            b.cache.add_peer("a", "127.0.0.1", port)
        await a.cache.connect(soon())
        assert not (await b.cache.lookup(refs, soon())).refs  # nothing credited
        await a.put(refs)
        outcome, got = await b.pull(refs)
        assert got == [content(ref, LAYOUT) for ref in refs], outcome
        lives += [e["incarnation"] for e in b.ops("fetch")[-2:]]
        await b.cache.drop()
        await a.cache.close()
        world.sites.remove(a)
    assert lives == sorted(lives) and len(set(lives)) == 10
    assert SECRET not in repr(b.cache.stats()).encode()
