"""Codecs that take time, between real sites: when it passes, and who waits for it."""

from __future__ import annotations

import asyncio

import pytest
from cache_sites import Site, World, make_layout, make_refs, soon
from test_substrate_codec import LAYOUT, copy, kv, put

from geokv.cache import ChunkRef
from geokv.cache.codec_cost import CodecCost
from geokv.cache.substrate.transport import BACKGROUND, FETCH
from geokv.clock import now_ns
from geokv.errors import FetchError
from geokv.units import NS_PER_S

FREE = 1e15


def costs(encode_s: float = 0.0, decode_s: float = 0.0) -> dict[str, CodecCost]:
    """So that a whole chunk takes so long."""
    rates = (LAYOUT.wire_bytes / one if one else FREE for one in (encode_s, decode_s))
    return dict.fromkeys(("zstd", "fp8", "int8"), CodecCost(*rates))


async def pair(
    world: World, encode_s: float = 0.0, decode_s: float = 0.0, codec: str = "zstd", **a: float
) -> tuple[Site, Site]:
    """Site a codes, site b decodes."""
    charged = {"codec": codec, "codec_costs": costs(encode_s, decode_s)}
    owner = await world.site("a", LAYOUT, transport=charged, **a)
    asker = await world.site(
        "b", LAYOUT, peers={"a": ("127.0.0.1", owner.port)}, transport=charged, exact=False
    )
    await asker.cache.connect(soon())
    return owner, asker


async def lone(site: Site, ref: ChunkRef, seconds: float = 5.0, **more: int) -> bytes:
    into = memoryview(bytearray(LAYOUT.real_bytes))
    await site.cache.transport.submit("a", ref, into, soon(seconds), **more).done
    return bytes(into)


def connections(site: Site) -> set[int]:
    """Ports of the connections to site a."""
    streams = site.cache.transport.peer("a")._streams.values()  # type: ignore[attr-defined]
    return {stream._channel.sock.getsockname()[1] for stream in streams}


async def test_coding_is_over_before_a_byte_comes_and_decoding_shows_as_completion(
    world: World,
) -> None:
    a, b = await pair(world, encode_s=0.04, decode_s=0.03)
    refs = make_refs(LAYOUT, 3)
    stored = await put(a, refs)
    begun = now_ns()
    outcome, got = await b.pull(refs)
    assert got == [stored[ref.key] for ref in refs]
    assert outcome.wire_bytes < 0.9 * 3 * LAYOUT.wire_bytes
    assert outcome.first_byte_ns - begun >= 0.04 * NS_PER_S
    assert outcome.last_byte_ns - begun >= 0.12 * NS_PER_S  # one core, three chunks in turn
    # The last one's decoding hides behind nothing.
    assert outcome.verified_ns - outcome.last_byte_ns >= 0.03 * NS_PER_S
    for site, way in ((a, "encode"), (b, "decode")):
        said = site.cache.transport.stats()["codecs"]
        assert said[f"{way}_busy_ns"] == pytest.approx(3e9 * (0.04 if way == "encode" else 0.03))


async def test_none_costs_nothing_and_a_group_costs_its_share(world: World) -> None:
    a, b = await pair(world, encode_s=0.2, decode_s=0.2, codec="none")
    refs = make_refs(LAYOUT, 2)
    await put(a, refs)
    await b.pull(refs)
    for site in (a, b):
        assert set(site.cache.transport.stats()["codecs"].values()) == {0}


async def test_what_gets_no_shorter_was_tried_and_goes_as_it_is(world: World) -> None:
    a, b = await pair(world, encode_s=0.02, decode_s=5.0)
    refs = make_refs(LAYOUT, 1)
    await a.put(refs)  # random bytes
    outcome, _ = await b.pull(refs)
    assert outcome.wire_bytes == LAYOUT.wire_bytes
    assert a.cache.transport.stats()["codecs"]["encode_busy_ns"] == pytest.approx(0.02e9)
    assert b.cache.transport.stats()["codecs"]["decode_busy_ns"] == 0


async def test_who_waits_for_an_answer_goes_before_who_does_not(world: World) -> None:
    a, b = await pair(world, encode_s=0.05)
    refs = make_refs(LAYOUT, 5)
    await put(a, refs)
    order: list[int] = []

    async def ask(number: int, priority: int) -> None:
        await lone(b, refs[number], priority=priority)
        order.append(number)

    tasks = [asyncio.create_task(ask(number, BACKGROUND)) for number in range(3)]
    await asyncio.sleep(0.02)  # the first has begun
    tasks += [asyncio.create_task(ask(number, FETCH)) for number in (3, 4)]
    await asyncio.gather(*tasks)
    assert order == [0, 3, 4, 1, 2]


async def test_a_lease_that_ends_before_a_byte_is_sent_is_a_miss_and_the_connection_stays(
    world: World,
) -> None:
    a, b = await pair(world, encode_s=0.3, lease_s=0.4)
    refs = make_refs(LAYOUT, 3)
    stored = await put(a, refs)
    before, begun = connections(b), now_ns()
    results = await asyncio.gather(*(lone(b, ref) for ref in refs), return_exceptions=True)
    assert now_ns() - begun < 0.6 * NS_PER_S  # not when the second would have been coded
    assert results[0] == stored[refs[0].key]
    for late in results[1:]:
        assert isinstance(late, FetchError) and late.cause == "lease"
    assert connections(b) == before
    assert a.cache.stats()["served"] == {"ok": 1, "lease": 2}
    assert a.cache.tier.stats()["pinned"] == 0
    await asyncio.sleep(0.3)  # the one that had begun keeps its core
    assert await lone(b, refs[1]) == stored[refs[1].key]


async def test_what_is_taken_back_while_it_is_coded_is_not_sent(world: World) -> None:
    a, b = await pair(world, encode_s=0.2)
    (ref,) = make_refs(LAYOUT, 1)
    await put(a, [ref])
    asked = asyncio.create_task(lone(b, ref))
    await asyncio.sleep(0.05)
    a.cache._source.revoke(ref.tenant, 1)
    with pytest.raises(FetchError) as caught:
        await asyncio.wait_for(asked, 0.1)
    assert caught.value.cause == "purged" and a.cache.tier.stats()["pinned"] == 0


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_deadline_in_decoding_is_a_miss_and_the_connection_stays(
    world: World, given_up: bool
) -> None:
    a, b = await pair(world, decode_s=0.3)
    refs = make_refs(LAYOUT, 3)
    stored = await put(a, refs)
    before = connections(b)
    if given_up:
        task = asyncio.create_task(b.pull(refs))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        outcome, got = await b.pull(refs, seconds=0.15)
        assert got == [] and outcome.misses == {"timeout": 1}
    await b.cache.quiesce(soon())
    assert b.cache.tier.stats()["reserved"] == 0 and b.cache.transport.up("a")
    assert connections(b) == before
    # What was dropped before its turn holds up nobody: one that has begun, and this one.
    begun = now_ns()
    assert await lone(b, refs[2]) == stored[refs[2].key]
    assert now_ns() - begun < 0.75 * NS_PER_S
    b.cache.check_integrity(deep=True)


@pytest.mark.parametrize("who", ["a", "b"])
async def test_a_site_that_ends_leaves_nothing_pinned_and_nobody_waiting(
    world: World, who: str
) -> None:
    a, b = await pair(world, **{"encode_s" if who == "a" else "decode_s": 0.5})
    refs = make_refs(LAYOUT, 3)
    await put(a, refs)
    asked = [asyncio.create_task(lone(b, ref)) for ref in refs]
    await asyncio.sleep(0.1)
    await (a if who == "a" else b).cache.close()
    for error in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(error, FetchError) and error.cause == "unreachable"
    await asyncio.sleep(0)
    assert a.cache.tier.stats()["pinned"] == 0 and not a.cache._source.lent


async def test_an_asker_that_goes_leaves_nothing_pinned(world: World) -> None:
    a, b = await pair(world, encode_s=1.0)
    refs = make_refs(LAYOUT, 3)
    await put(a, refs)
    asked = [asyncio.create_task(lone(b, ref)) for ref in refs]
    await asyncio.sleep(0.1)
    assert a.cache.tier.stats()["pinned"] == 3
    await b.cache.close()
    await asyncio.gather(*asked, return_exceptions=True)
    await asyncio.sleep(0.1)
    assert a.cache.tier.stats()["pinned"] == 0
    assert a.cache.stats()["served"] == {"unreachable": 3}


async def test_what_is_ready_waits_for_what_is_being_sent(world: World) -> None:
    """Chunks that no socket takes at once, coded faster than they are read."""
    layout = make_layout(dtype="bfloat16", wire_bytes_per_token=128 * 1024)
    charged = {"codec": "zstd", "codec_costs": costs(), "streams": 1}
    a = await world.site("a", layout, transport=charged)
    b = await world.site(
        "b", layout, peers={"a": ("127.0.0.1", a.port)}, transport=charged, chunks=8
    )
    await b.cache.connect(soon())
    refs = make_refs(layout, 8)
    stored = {}
    for number, ref in enumerate(refs):
        raw = stored[ref.key] = kv(layout, number)
        assert await a.cache.store(ref, lambda view, raw=raw: copy(view, raw), publish=False)
    assert await a.cache.publish(list(stored))
    outcome, got = await b.pull(refs)
    assert got == list(stored.values()) and outcome.wire_bytes < 0.9 * 8 * layout.wire_bytes
    assert a.cache.stats()["served"] == {"ok": 8}


async def test_what_is_whole_survives_its_connection(world: World) -> None:
    a, b = await pair(world, decode_s=0.2)
    (ref,) = make_refs(LAYOUT, 1)
    stored = await put(a, [ref])
    asked = asyncio.create_task(lone(b, ref))
    await asyncio.sleep(0.1)
    await a.cache.close()
    assert await asked == stored[ref.key]


async def test_groups_are_charged_their_own_bytes(world: World) -> None:
    a, b = await pair(world, encode_s=0.02, decode_s=0.02)
    refs = make_refs(LAYOUT, 2)
    await put(a, refs)

    async def on_piece(chunk: int, group: int, view: memoryview) -> None:
        return None

    async def on_group(group: int, chunks: int) -> None:
        return None

    plan = await b.cache.lookup(refs, soon())
    outcome = await b.cache.fetch_layered(plan, soon(), on_piece, on_group)
    assert outcome.remote_chunks == 2 and outcome.verified_ns > outcome.last_byte_ns
    assert a.cache.transport.stats()["codecs"]["encode_busy_ns"] == pytest.approx(0.04e9)
    assert b.cache.transport.stats()["codecs"]["decode_busy_ns"] == pytest.approx(0.04e9)
