"""TLS 1.3 between sites: the same promises, and nothing readable on the fibre."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from dataclasses import replace

import pytest
from cache_proxy import Proxy
from cache_sites import SECRET, Site, World, content, make_layout, make_refs, soon

from geokv.cache import ChunkRef
from geokv.cache.substrate.tcp.channel import Channel, Segment
from geokv.cache.substrate.tcp.handshake import Identity, admit, greet
from geokv.cache.substrate.tcp.keyring import deal
from geokv.cache.substrate.tcp.tls import TlsSocket, make_context, start_tls
from geokv.errors import ConfigError, FetchError

LAYOUT = make_layout()
RINGS = deal(SECRET, ["a", "b", "c"], tls=True)
OTHERS = deal(b"another deployment", ["a", "b"], tls=True)
TLS = {"security": "tls"}
OVER = FetchError("unreachable", "the test is over")


async def tls_pair(world: World, **transport: object) -> tuple[Site, Site, Proxy, list[ChunkRef]]:
    """Site a behind a proxy, the directory at b, four chunks at a."""
    a, b, proxy = await world.behind_proxy(
        LAYOUT,
        a={"secret": RINGS["a"]},
        b={"secret": RINGS["b"]},
        transport={**TLS, "streams": 1, "in_flight": 1, **transport},
    )
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    return a, b, proxy, refs


async def secured(pair: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    loop = asyncio.get_running_loop()
    here, there = (Channel(sock, loop) for sock in pair)
    a, b = RINGS["a"].tls, RINGS["b"].tls
    assert a is not None and b is not None
    names = await asyncio.gather(
        start_tls(here, make_context(a, server=False), a),
        start_tls(there, make_context(b, server=True), b),
    )
    assert names == ["b", "a"]
    return here, there


async def test_chunks_cross_and_nothing_of_them_can_be_read(world: World) -> None:
    a, b, proxy, refs = await tls_pair(world, streams=3, in_flight=2)
    proxy.keep_answers()
    await b.cache.warm(300_000, soon())
    outcome, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs] and not outcome.misses
    wire = bytes(proxy.answers)
    assert len(wire) > 4 * LAYOUT.wire_bytes
    assert a.cache.stats()["transport"]["security"] == "tls"
    streams = b.cache.stats()["transport"]["peers"]["a"]["streams"]
    assert all(info["rtt_us"] > 0 for info in streams.values())
    secrets = [b"acme", b"GKVR", refs[0].key, content(refs[0], LAYOUT)[:16]]
    assert not any(secret in wire for secret in secrets)
    await proxy.close()


async def test_without_tls_the_same_bytes_can_be_read(world: World) -> None:
    """So that the test above looks at the right place."""
    a, b, proxy = await world.behind_proxy(LAYOUT, transport={"streams": 1})
    proxy.keep_answers()
    refs = make_refs(LAYOUT, 1)
    await a.put(refs)
    await b.pull(refs)
    wire = bytes(proxy.answers)
    assert all(part in wire for part in (b"acme", b"GKVR", content(refs[0], LAYOUT)[:16]))
    await proxy.close()


@pytest.mark.parametrize("offset", [0, 3, 50, 20_000, 40_000])
async def test_a_flipped_bit_is_a_miss(world: World, offset: int) -> None:
    _, b, proxy, refs = await tls_pair(world)
    proxy.arm("flip", offset)
    outcome, got = await b.pull(refs, seconds=1)
    assert proxy.fired == 1
    assert not got and sum(outcome.misses.values()) == 1
    assert set(outcome.misses) <= {"corrupt", "timeout", "unreachable"}
    proxy.disarm()
    await b.cache.quiesce(soon())
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    await proxy.close()


async def test_a_cut_is_a_miss_and_the_next_fetch_is_well(world: World) -> None:
    _, b, proxy, refs = await tls_pair(world)
    proxy.arm("cut", 30_000)
    outcome, got = await b.pull(refs)
    assert not got and outcome.misses == {"unreachable": 1}
    proxy.disarm()
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    await proxy.close()


@pytest.mark.parametrize(
    ("client", "server"),
    [(OTHERS["b"], RINGS["a"]), (RINGS["b"], OTHERS["a"]), (OTHERS["b"], OTHERS["a"])],
    ids=["stranger asks", "stranger answers", "both of another deployment"],
)
async def test_certificates_of_another_deployment(
    ends: tuple[socket.socket, socket.socket], client: object, server: object
) -> None:
    loop = asyncio.get_running_loop()
    here, there = (Channel(sock, loop) for sock in ends)
    asking = Identity("b", 1, LAYOUT, client, security="tls")  # type: ignore[arg-type]
    answering = Identity("a", 1, LAYOUT, server, security="tls")  # type: ignore[arg-type]

    async def serve() -> object:
        try:
            return await admit(there, answering)
        except FetchError as error:
            there.close(error)
            raise

    async def ask() -> object:
        try:
            return await greet(here, asking, "a")
        except FetchError as error:
            here.close(error)
            raise

    async with asyncio.timeout(5):
        results = await asyncio.gather(ask(), serve(), return_exceptions=True)
    if client is OTHERS["b"] and server is OTHERS["a"]:
        assert not any(isinstance(result, Exception) for result in results)
    else:
        errors = [result.cause for result in results if isinstance(result, FetchError)]
        assert errors == ["unauthorised", "unauthorised"]
    here.close(OVER)
    there.close(OVER)


async def test_another_site_of_the_deployment_at_the_address(world: World) -> None:
    c = await world.site("c", LAYOUT, secret=RINGS["c"], transport=TLS)
    b = await world.site(
        "b", LAYOUT, secret=RINGS["b"], peers={"a": ("127.0.0.1", c.port)}, transport=TLS
    )
    with pytest.raises(FetchError, match="'c' answers at the address of 'a'") as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "unauthorised"


@pytest.mark.parametrize("asker", ["mac", "tls"])
async def test_sites_with_and_without_tls_do_not_join(world: World, asker: str) -> None:
    other = "tls" if asker == "mac" else "mac"
    a = await world.site("a", LAYOUT, secret=RINGS["a"], transport={"security": other})
    b = await world.site(
        "b",
        LAYOUT,
        secret=RINGS["b"],
        peers={"a": ("127.0.0.1", a.port)},
        transport={"security": asker},
    )
    with pytest.raises(FetchError) as caught:
        await b.cache.connect(soon(1))
    assert caught.value.cause in {"unauthorised", "unreachable", "timeout"}


async def test_older_tls_is_refused(world: World) -> None:
    a = await world.site("a", LAYOUT, secret=RINGS["a"], transport=TLS)
    files = RINGS["b"].tls
    assert files is not None
    old = make_context(files, server=False)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", a.port))
    channel = Channel(sock, asyncio.get_running_loop())
    with pytest.raises(FetchError, match="version") as caught:
        await start_tls(channel, old, files)
    channel.close(OVER)
    assert caught.value.cause == "unauthorised"


async def test_pieces_of_any_size_arrive_in_their_places(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """More than the kernel takes at once, in both directions, short reads and long."""
    here, there = await secured(ends)
    rng = random.Random(3)
    sizes = [1, 17, 300_000, 5, 1_300_000, 70_000, 0, 2]
    pieces = [rng.randbytes(size) for size in sizes]
    places = [bytearray(size) for size in sizes]
    sent, received = here.sent_bytes, there.received_bytes  # of the handshake
    async with asyncio.timeout(10):
        reading = asyncio.ensure_future(
            there.receive([Segment(len(place), memoryview(place)) for place in places])
        )
        here.write(pieces)
        assert here.sent_bytes - sent < sum(sizes)
        await here.drain()
        await reading
        there.write([b"answer"])
        assert await here.receive_bytes(3) == b"ans"
        assert await here.receive_bytes(3) == b"wer"
    assert [bytes(place) for place in places] == pieces
    assert here.sent_bytes - sent == there.received_bytes - received == sum(sizes)
    assert isinstance(here.sock, TlsSocket)
    here.close(OVER)
    with pytest.raises(FetchError, match="closed"):
        await there.receive_bytes(1)
    there.close(OVER)


async def test_bytes_are_reported_as_sent_only_when_the_kernel_has_them(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = await secured(ends)
    data = random.Random(1).randbytes(3_000_000)
    here.write([data])
    sent = here.sent_bytes
    await asyncio.sleep(0.05)
    assert here.sent_bytes == sent < len(data)  # nobody reads
    draining = asyncio.ensure_future(here.drain())
    await asyncio.sleep(0.01)
    assert not draining.done()
    assert await there.receive_bytes(len(data)) == data
    await draining
    here.close(OVER)
    there.close(OVER)


def test_tls_without_certificates_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no certificate"):
        Identity("a", 1, LAYOUT, replace(RINGS["a"], tls=None), security="tls")
    with pytest.raises(ConfigError, match="must be mac or tls, got 'ssl'"):
        Identity("a", 1, LAYOUT, RINGS["a"], security="ssl")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="keys of site 'b' were given to 'a'"):
        Identity("a", 1, LAYOUT, RINGS["b"])


def test_certificates_are_the_same_on_every_machine_and_of_one_length() -> None:
    again = deal(SECRET, ["c", "b", "a"], tls=True)
    assert again == RINGS
    files = [ring.tls for ring in RINGS.values() if ring.tls is not None]
    assert len({len(one.chain) for one in files}) == 1 and len({one.chain for one in files}) == 3
    assert all(b"CN=a" not in one.chain for one in files)
