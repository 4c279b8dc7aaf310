"""Public fault reports about a transfer, each as an input with the verdict it must have.

The ids are those of the project's collection of reports (F01 …). Verdicts: ``ok``, or
``degraded`` (slower, and correct); never a wrong byte, a request that does not end, or
room that does not come back. What needs a network is in ``tests/lab/test_wire_faults.py``.
"""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import pytest
from cache_proxy import Proxy
from cache_sites import SECRET, Site, World, content, filling, make_layout, make_refs, soon

from geokv.cache import ChunkRef, Entry
from geokv.cache.plan import Plan
from geokv.cache.record import make_header
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.handshake import Identity, Session, greet, receive_frame
from geokv.cache.substrate.tcp.keyring import SecretRing
from geokv.cache.substrate.tcp.wire import Kind
from geokv.errors import FetchError

LAYOUT = make_layout()


async def behind_proxy(world: World, **more: Any) -> tuple[Site, Site, Proxy]:
    """Site a behind a proxy; site b, which keeps the directory, asks over one stream."""
    transport = {"streams": 1, "in_flight": 4}
    return await world.behind_proxy(LAYOUT, a=more, b={"transport": transport})


async def use(site: Site, plan: Plan, seconds: float = 5.0) -> tuple[Any, list[bytes]]:
    got: list[bytes] = []

    async def take(index: int, entry: Entry) -> None:
        got.append(bytes(entry.view))

    return await site.cache.fetch(plan, soon(seconds), take), got


class Insider:
    """A peer that has the keys and says what it likes."""

    def __init__(self, channel: Channel, session: Session) -> None:
        self.channel = channel
        self.session = session

    @classmethod
    async def dial(cls, port: int, name: str = "c") -> Insider:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        channel = Channel(sock, asyncio.get_running_loop())
        me = Identity(name, 1, LAYOUT, SecretRing(name, SECRET))
        return cls(channel, await greet(channel, me, "a"))

    async def ask(self, kind: Kind, message: Any) -> tuple[Kind, bytes]:
        self.channel.write([self.session.codec.pack(kind, wire.encode(message))])
        async with asyncio.timeout(2):
            return await receive_frame(self.channel, self.session.codec)

    def close(self) -> None:
        self.channel.close(FetchError("unreachable", "the test is over"))


# -- F01: a reference that is not right (vllm#52234) --------------------------------------


async def test_f01_an_unknown_reference_is_a_miss(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    known, unknown = make_refs(LAYOUT, 2), make_refs(LAYOUT, 2, seed=1)
    await a.put(known)
    plan = Plan(tuple(unknown), (("a",), ("a",)), 2, 0)
    outcome, got = await use(b, plan)
    assert not got and outcome.misses == {"absent": 1} == b.cache.misses


async def test_f01_a_reference_out_of_range_gets_no_bytes_and_is_counted(world: World) -> None:
    a, _ = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 1)
    await a.put(refs)
    for group in (LAYOUT.groups, 10**6, -2):
        insider = await Insider.dial(a.port)
        get = wire.Get(1, refs[0].key, refs[0].tenant, group=group)
        kind, _ = await insider.ask(Kind.GET, get)
        assert kind is Kind.MISS
        insider.close()
    for place in (
        wire.Place(0, b"k" * 16, 0, 100),
        wire.Place(2**31, b"", 2**62, 2**62),
        wire.Place(0, b"", -1, 10),
    ):
        insider = await Insider.dial(a.port)
        kind, _ = await insider.ask(Kind.READ, wire.Access(1, (place,)))
        assert kind is Kind.MISS
        insider.close()
    await asyncio.sleep(0.05)
    assert a.cache.stats()["served"] == {"mismatch": 3}
    assert not [event for event in a.ops("serve") if event["sent_bytes"] and not event["cause"]]


async def test_offers_without_payload_hold_so_many_places_and_so_long(world: World) -> None:
    a = await world.site("a", LAYOUT, chunks=80, transport={"limits": {"send_s": 0.5}})
    insider = await Insider.dial(a.port)
    sums = (bytes(16),) * LAYOUT.groups
    said = []
    for number, ref in enumerate(make_refs(LAYOUT, 66)):
        offer = wire.Offer(number, make_header(ref, LAYOUT, sums, 1, 1).pack())
        said.append(await insider.ask(Kind.OFFER, offer))
    assert [kind for kind, _ in said] == [Kind.ACCEPT] * 64 + [Kind.MISS] * 2
    assert wire.decode(said[-1][1], wire.Miss).cause == "full"
    assert a.cache.tier.stats()["reserved"] == 64
    await asyncio.sleep(0.8)
    assert a.cache.tier.stats()["reserved"] == 0
    assert a.cache.stats()["pushed"] == {"timeout": 64}
    kind, _ = await insider.ask(Kind.CALL, wire.Call(99, "nothing", b""))
    assert kind is Kind.REPLY  # it costs the offers, and not the connection
    insider.close()


async def test_f01_a_reference_used_again_after_it_was_consumed(world: World) -> None:
    a, b = await world.pair(LAYOUT, replicate=False)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    plan = await b.cache.lookup(refs, soon())
    _, got = await use(b, plan)
    assert got == [content(ref, LAYOUT) for ref in refs]
    await a.cache.drop()
    await b.cache.drop()
    outcome, got = await use(b, plan)
    assert not got and outcome.misses == {"absent": 1} and b.cache.misses == {"absent": 1}


async def test_f01_a_stale_reference_never_gets_the_blocks_next_owner(world: World) -> None:
    """The producer has room for one chunk and has reused it."""
    a = await world.site("a", LAYOUT, chunks=1)
    b = await world.site("b", LAYOUT, peers={"a": ("127.0.0.1", a.port)})
    await b.cache.connect(soon())
    (old,), (new,) = make_refs(LAYOUT, 1), make_refs(LAYOUT, 1, seed=1)
    await a.put([old])
    plan = await b.cache.lookup([old], soon())
    assert await a.cache.store(new, filling(new, LAYOUT), publish=False)
    assert a.ops("store")[0]["generation"] == 1 and a.ops("store")[1]["generation"] == 2
    outcome, got = await use(b, plan)
    assert not got and outcome.misses == {"absent": 1} and b.cache.misses == {"absent": 1}
    await a.cache.quiesce(soon())


async def test_f01_an_expired_lease_is_a_miss(world: World) -> None:
    a, b, proxy = await behind_proxy(world, lease_s=0.03)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    proxy.arm("slow", 100)
    outcome, got = await b.pull(refs)
    assert not got and outcome.misses == {"lease": 1} == b.cache.misses
    await proxy.close()


# -- F03 and F18: gone in between ---------------------------------------------------------


async def test_f03_an_eviction_in_mid_send_waits_or_is_a_clean_miss(world: World) -> None:
    """The provider is full, one chunk is on its way, and everything else is evicted."""
    a, b, proxy = await behind_proxy(world, chunks=4)
    refs, more = make_refs(LAYOUT, 4), make_refs(LAYOUT, 8, seed=1)
    await a.put(refs)
    proxy.arm("slow", 100)
    pulling = asyncio.ensure_future(b.pull(refs))
    while not proxy.fired:
        await asyncio.sleep(0.001)
    for ref in more:
        await a.cache.store(ref, filling(ref, LAYOUT), publish=False)
    outcome, got = await pulling
    assert got == [content(ref, LAYOUT) for ref in refs[: len(got)]]
    assert len(got) == 4 or set(outcome.misses) <= {"absent", "lease"}
    assert a.cache.tier.evictions >= 4
    await a.cache.quiesce(soon())
    await proxy.close()


async def test_f18_evicted_between_lookup_and_get(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    plan = await b.cache.lookup(refs, soon())
    assert plan.remote_chunks == 3
    a.cache.tier.drop([refs[1].key])
    outcome, got = await use(b, plan)
    assert got == [content(refs[0], LAYOUT)] and outcome.misses == {"absent": 1}
    await a.cache.quiesce(soon())
    again = await b.cache.lookup(refs, soon())  # the directory has learnt it
    assert len(again.refs) == 1


# -- F05: flipped bits --------------------------------------------------------------------


async def test_f05_every_flipped_bit_among_a_thousand_chunks_is_found(world: World) -> None:
    small = make_layout(chunk_tokens=16, wire_bytes_per_token=1024)
    a, b, proxy = await world.behind_proxy(
        small, a={"chunks": 250}, b={"chunks": 8, "replicate": False}
    )
    families = [make_refs(small, 4, seed=seed) for seed in range(50)]
    for refs in families:
        await a.put(refs)
    rng = random.Random(5)
    taken = injected = detected = 0
    for _ in range(5):
        for refs in families:
            flip = rng.random() < 0.05
            if flip:
                proxy.arm("flip", rng.randrange(1000, 3 * small.wire_bytes))
            before = proxy.fired
            outcome, got = await b.pull(refs)
            assert got == [content(ref, small) for ref in refs[: len(got)]]
            taken += len(got)
            proxy.disarm()
            await b.cache.quiesce(soon())
            injected += proxy.fired - before
            detected += bool(outcome.misses)
            await b.cache.drop()
    assert injected >= 3 and detected == injected and taken > 980
    await proxy.close()


# -- F06: half a block --------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 4])
async def test_f06_a_stream_cut_after_any_layer_is_never_readable(
    world: World, groups: int
) -> None:
    layout = make_layout(groups=groups)
    a, b, proxy = await world.behind_proxy(layout, b={"transport": {"streams": 1}})
    (ref,) = make_refs(layout, 1)
    await a.put([ref])
    with a.cache.tier.get(ref.key) as entry:  # type: ignore[union-attr]
        head = 20 + 8 + len(entry.header.stamped(1, 1, 1).pack()) + 16
    ends = [sum(map(sum, layout.group_bytes[: group + 1])) for group in range(groups)]
    for end in [0, *ends[:-1], layout.wire_bytes - 1]:
        for offset in {max(0, end - 1), end}:
            proxy.arm("cut", head + offset)
            outcome, got = await b.pull([ref])
            assert not got and outcome.misses == {"unreachable": 1}, offset
            assert ref.key not in b.cache.tier and b.cache.tier.stats()["reserved"] == 0
            proxy.disarm()
    _, got = await b.pull([ref])
    assert got == [content(ref, layout)]
    await proxy.close()


# -- F09: blocks leak when the end of a transfer is lost ----------------------------------


async def test_f09_nothing_leaks_when_one_answer_in_ten_loses_its_end(world: World) -> None:
    a, b, proxy = await behind_proxy(world, lease_s=0.2)
    rng = random.Random(9)
    families = [make_refs(LAYOUT, 2, seed=seed) for seed in range(20)]
    for refs in families:
        await a.put(refs)
    lost = 0
    for refs in families:
        if rng.random() < 0.3:
            proxy.arm("cut", 2 * LAYOUT.wire_bytes)  # within the last chunk
            lost += 1
        _, got = await b.pull(refs)
        assert got == [content(ref, LAYOUT) for ref in refs[: len(got)]]
        proxy.disarm()
    assert lost >= 3
    await asyncio.sleep(0.3)  # a lease
    for site in (a, b):
        await site.cache.quiesce(soon())
        stats = site.cache.tier.stats()
        assert stats["free"] + stats["cached"] == stats["slots"]
        site.cache.check_integrity(deep=True)
    await proxy.close()


async def test_f09_the_same_transfer_id_twice(world: World) -> None:
    """An id names nothing beyond its own connection and its own answer."""
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    insider = await Insider.dial(a.port)
    for ref in (refs[0], refs[1], refs[0]):
        kind, body = await insider.ask(Kind.GET, wire.Get(7, ref.key, ref.tenant))
        id_, packed = wire.split_chunk(body)
        assert (kind, id_) == (Kind.CHUNK, 7) and ref.key in bytes(packed)
        await insider.channel.receive_bytes(LAYOUT.wire_bytes)
    insider.close()
    await asyncio.sleep(0.05)
    assert a.cache.tier.stats()["pinned"] == 0
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]


async def test_f09_a_client_is_refused_an_answer_with_an_id_it_did_not_use(world: World) -> None:
    """A reused id must not overwrite somebody else's transfer."""
    layout = LAYOUT
    refs = make_refs(layout, 3)
    a = await world.site("a", layout)
    await a.put(refs)
    honest = wire.chunk_body

    def swapped(id_: int, header: bytes) -> bytes:
        return honest(id_ + 1 if id_ == 1 else id_, header)

    b = await world.site("b", layout, peers={"a": ("127.0.0.1", a.port)}, transport={"streams": 1})
    await b.cache.connect(soon())
    wire.chunk_body = swapped  # type: ignore[assignment]
    try:
        outcome, got = await b.pull(refs)
    finally:
        wire.chunk_body = honest
    assert not got and sum(outcome.misses.values()) == 1
    assert set(outcome.misses) <= {"corrupt", "mismatch", "unreachable"}
    await b.cache.quiesce(soon())
    await b.cache.drop()
    _, got = await b.pull(refs)
    assert got == [content(ref, layout) for ref in refs]


async def test_a_peer_does_not_name_our_counters(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 1)
    await a.put(refs)
    a.cache._source.open = lambda key, tenant, peer: "x" * 1000  # type: ignore[method-assign]
    outcome, got = await b.pull(refs)
    assert not got and outcome.misses == {"refused": 1}
    a.cache._source.open = lambda key, tenant, peer: "absent"  # type: ignore[method-assign]
    assert (await b.pull(refs))[0].misses == {"absent": 1}


# -- F21: sites that do not mean the same -------------------------------------------------


async def test_f21_another_model_is_refused_at_join_and_not_zero_hits(world: World) -> None:
    a = await world.site("a", make_layout(model_fingerprint="seed 1"))
    b = await world.site(
        "b", make_layout(model_fingerprint="seed 2"), peers={"a": ("127.0.0.1", a.port)}
    )
    with pytest.raises(FetchError, match="model_fingerprint") as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "mismatch"
    assert "seed 1" in caught.value.message and "seed 2" in caught.value.message


async def test_f21_colliding_keys_are_told_apart_by_their_tokens(world: World) -> None:
    """Keys cut to one byte, so that two prompts collide."""

    def short(refs: list[ChunkRef]) -> list[ChunkRef]:
        return [
            ChunkRef(ref.key[:1] * 16, ref.parent[:1] * 16, ref.tokens, ref.tenant) for ref in refs
        ]

    a, b = await world.pair(LAYOUT)
    prompts: dict[bytes, list[ChunkRef]] = {}
    for seed in range(600):
        (ref,) = short(make_refs(LAYOUT, 1, seed=seed))
        prompts.setdefault(ref.key, []).append(ref)
    pairs = [same[:2] for same in prompts.values() if len(same) > 1][:20]
    assert len(pairs) == 20
    for stored, asked in pairs:
        await a.put([stored])
        outcome, got = await b.pull([asked])
        assert not got and outcome.misses == {"mismatch": 1}
        outcome, got = await b.pull([stored])
        assert got == [content(stored, LAYOUT)]
        await b.cache.drop()
        await a.cache.drop()
