"""A peer without the key gets nothing: no byte that depends on what is here, no step more
or less, and nothing for what it has recorded of others."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import Counter
from math import erfc, sqrt
from typing import Any

import pytest
from cache_proxy import Proxy
from cache_sites import SECRET, Site, World, content, make_layout, make_refs, socket_pair

from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.handshake import NONCE_BYTES, Hello, Identity, admit, greet
from geokv.cache.substrate.tcp.keyring import Keyring, deal
from geokv.cache.substrate.tcp.wire import FrameCodec, Get, Kind, encode
from geokv.errors import FetchError

LAYOUT = make_layout()


def mann_whitney_p(one: list[int], other: list[int]) -> float:
    """Two-sided, normal approximation with the correction for ties (Mann and Whitney 1947)."""
    together = sorted(one + other)
    first: dict[int, int] = {}
    counts = Counter(together)
    at = 0
    for value, count in sorted(counts.items()):
        first[value] = at
        at += count
    rank = {value: first[value] + (counts[value] + 1) / 2 for value in counts}
    n, m = len(one), len(other)
    u = sum(rank[value] for value in one) - n * (n + 1) / 2
    ties = sum(count**3 - count for count in counts.values())
    variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)))
    if not variance:
        return 1.0
    return erfc(abs(u - n * m / 2) / sqrt(2 * variance))


def test_the_test_sees_a_difference() -> None:
    rng = random.Random(4)
    one = [rng.randrange(100) for _ in range(200)]
    same = [rng.randrange(100) for _ in range(200)]
    other = [value + 15 for value in same]
    assert mann_whitney_p(one, same) > 0.05
    assert mann_whitney_p(one, other) < 0.001
    assert mann_whitney_p([5] * 200, [5] * 200) == 1.0
    assert mann_whitney_p([5] * 200, [6] * 200) < 1e-6


async def knock(me: Identity, name: str, key: bytes, seed: int) -> tuple[int, int]:
    """A stranger says HELLO as ``name`` and asks for ``key`` without knowing any secret.

    Returns:
        Bytes it was sent, and steps (calls of functions, Python's and C's) the server took.
    """
    ours, theirs = socket_pair()
    rng = random.Random(seed)
    hello = FrameCodec().pack(Kind.HELLO, encode(Hello(rng.randbytes(NONCE_BYTES), name)))
    guess = FrameCodec((rng.randbytes(32), rng.randbytes(32)))
    asked = guess.pack(Kind.JOIN, rng.randbytes(300))
    asked += guess.pack(Kind.GET, encode(Get(1, key, "acme")))
    ours.send(hello + asked)
    channel = Channel(theirs, asyncio.get_running_loop())
    steps = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        with pytest.raises(FetchError) as caught:
            await admit(channel, me)
    finally:
        sys.setprofile(None)
    assert caught.value.cause == "unauthorised"
    channel.close(caught.value)
    ours.close()
    return channel.sent_bytes, steps


async def test_wrong_keys_unknown_names_and_any_chunk_look_alike() -> None:
    rings = deal(SECRET, ["a", "b", "c"])
    here, absent = (ref.key for ref in make_refs(LAYOUT, 2))
    me = Identity("a", 1, LAYOUT, rings["a"])
    cases = {
        "a known name, a chunk that is here": ("b", here),
        "a known name, a chunk that is not": ("b", absent),
        "an unknown name, a chunk that is here": ("x", here),
        "an unknown name, a chunk that is not": ("x", absent),
        "our own name": ("a", here),
    }
    seen: dict[str, list[tuple[int, int]]] = {case: [] for case in cases}
    await knock(me, "b", here, 0)  # what happens once only
    for round_ in range(200):
        for case, (name, key) in cases.items():
            seen[case].append(await knock(me, name, key, round_))
    first, *others = seen.values()
    for other in others:
        assert {got for got, _ in other} == {got for got, _ in first}
        assert mann_whitney_p([s for _, s in first], [s for _, s in other]) > 0.01
    assert len({got for got, _ in first}) == 1


async def listen_in(world: World) -> tuple[Site, Site, Proxy, list[bytes]]:
    """b fetches from a through a proxy that keeps what b sent, one piece per connection."""
    rings = deal(SECRET, ["a", "b"])
    recorded: list[bytes] = []
    secrets = {site: {"secret": rings[site]} for site in rings}
    a, b, proxy = await world.behind_proxy(LAYOUT, record=[recorded], **secrets)
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    return a, b, proxy, recorded


async def test_a_recorded_connection_opens_nothing_again(world: World) -> None:
    a, _, proxy, recorded = await listen_in(world)
    served = len(a.ops("serve"))
    assert served == 4 and len(recorded) == 5
    for session in recorded:
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        writer.write(session)
        writer.write_eof()
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # its end left most of it unread
            answer = await asyncio.wait_for(reader.read(), 5)
        assert len(answer) < 150  # a challenge, whose nonce is another, and no more
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
    await asyncio.sleep(0.05)
    assert len(a.ops("serve")) == served
    causes = a.cache.stats()["transport"]["server"]["causes"]
    assert causes["unauthorised"] == len(recorded)
    await proxy.close()


async def test_a_recorded_frame_is_refused_in_its_own_connection(world: World) -> None:
    """Somebody on the path sends b's last request once more."""
    a, b, proxy, recorded = await listen_in(world)
    served = len(a.ops("serve"))
    connection = max(range(len(recorded)), key=lambda one: len(recorded[one]))
    session = recorded[connection]
    proxy.inject(connection, session[_start_of_last(session) :])
    for _ in range(1000):
        if a.cache.stats()["transport"]["server"]["causes"].get("corrupt"):
            break
        await asyncio.sleep(0.01)
    assert a.cache.stats()["transport"]["server"]["causes"]["corrupt"] == 1
    assert len(a.ops("serve")) == served
    refs = make_refs(LAYOUT, 4)
    await b.cache.drop()
    _, got = await b.pull(refs)  # it costs that connection and no more
    assert got == [content(ref, LAYOUT) for ref in refs]
    await proxy.close()


def _start_of_last(session: bytes) -> int:
    at = last = 0
    keyed = False
    while at < len(session):
        codec = FrameCodec((b"x" * 32, b"x" * 32)) if keyed else FrameCodec()
        codec._received = int.from_bytes(session[at + 8 : at + 16], "big")
        _, length = codec.head(session[at : at + 20])
        last = at
        at += 20 + length + codec.mac_bytes
        keyed = True
    return last


async def test_a_frame_of_one_connection_is_worth_nothing_on_another() -> None:
    """The same two sites, the same sequence number, another connection."""
    rings = deal(SECRET, ["a", "b"])
    me = Identity("a", 1, LAYOUT, rings["a"])
    first = FrameCodec((b"1" * 32, b"2" * 32)).pack(Kind.JOIN, b"body")
    ours, theirs = socket_pair()
    ours.send(FrameCodec().pack(Kind.HELLO, encode(Hello(b"n" * 32, "b"))) + first)
    channel = Channel(theirs, asyncio.get_running_loop())
    with pytest.raises(FetchError, match="damaged or forged"):
        await admit(channel, me)
    channel.close(FetchError("unreachable", "over"))
    ours.close()


async def test_the_key_for_strangers_lets_nobody_in() -> None:
    """A site without peers has a key for unknown names that anybody can work out."""
    lone = Keyring("a", {})
    ours, theirs = socket_pair()
    loop = asyncio.get_running_loop()
    here, there = Channel(ours, loop), Channel(theirs, loop)
    guess = Identity("b", 1, LAYOUT, Keyring("b", {"a": lone.key("b")}))
    async with asyncio.timeout(5):
        results = await asyncio.gather(
            greet(here, guess, "a"),
            closing(there, admit(there, Identity("a", 1, LAYOUT, lone))),
            return_exceptions=True,
        )
    assert [getattr(one, "cause", one) for one in results] == ["unreachable", "unauthorised"]
    here.close(FetchError("unreachable", "over"))


async def closing(channel: Channel, work: Any) -> Any:
    """As the server does: whatever goes wrong ends the connection."""
    try:
        return await work
    except FetchError as error:
        channel.close(error)
        raise
