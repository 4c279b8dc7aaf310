"""Who may talk: wrong secrets, impostors, other layouts, strangers, replayed frames."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from dataclasses import replace

import pytest
from cache_sites import SECRET, World, make_layout, make_refs, soon

from geokv.cache import TcpTransport
from geokv.cache.substrate.tcp.handshake import Challenge, Security
from geokv.cache.substrate.tcp.keyring import SecretRing, deal
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, FrameCodec, Kind, encode
from geokv.errors import CacheError, ConfigError, FetchError, RecordError

OTHER = b"the secret of another deployment"


async def settle() -> None:
    """Let the servers see what the clients did."""
    await asyncio.sleep(0.05)


async def test_a_wrong_secret_is_refused_and_counted(world: World) -> None:
    layout = make_layout()
    a = await world.site("a", layout)
    b = await world.site("b", layout, secret=OTHER, peers={"a": ("127.0.0.1", a.port)})
    with pytest.raises(FetchError, match="does not have the key of 'b' and 'a'") as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "unauthorised"
    await settle()
    stats = a.cache.stats()["transport"]["server"]
    assert stats["causes"]["unauthorised"] >= 1 and stats["connections"] == 0


async def test_a_server_that_cannot_prove_its_name_is_refused(world: World) -> None:
    """An impostor learns the caller's name and a nonce, and not the layout."""
    heard = bytearray()

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(4096))
        writer.write(FrameCodec().pack(Kind.CHALLENGE, encode(Challenge(b"n" * 32, b"m" * 32))))
        heard.extend(await reader.read(4096))
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        b = await world.site("b", make_layout(), peers={"a": ("127.0.0.1", port)})
        with pytest.raises(FetchError, match="does not have the key") as caught:
            await b.cache.connect(soon())
        assert caught.value.cause == "unauthorised"
        await settle()
        await b.cache.close()
    assert b"tiny" not in heard and heard.count(b"GEOKV") == 0
    assert 0 < len(heard) <= 5 * (HEAD_BYTES + 40)


async def test_another_site_at_the_address_is_refused(world: World) -> None:
    layout = make_layout()
    a = await world.site("a", layout)
    b = await world.site("b", layout, peers={"c": ("127.0.0.1", a.port)})
    with pytest.raises(FetchError, match="at the address of 'c' does not have the key") as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "unauthorised"


@pytest.mark.parametrize("security", ["mac", "tls"])
async def test_a_site_cannot_call_itself_by_another_name(world: World, security: Security) -> None:
    """b has the keys that were dealt to b. With them it is b, and never c."""
    layout = make_layout()
    rings = deal(SECRET, ["a", "b", "c"], tls=True)
    more = {"security": security}
    a = await world.site("a", layout, secret=rings["a"], transport=more)
    stolen = replace(rings["b"], site="c", pairs={**rings["b"].pairs, "b": bytes(32)})
    c = await world.site(
        "c", layout, secret=stolen, peers={"a": ("127.0.0.1", a.port)}, transport=more
    )
    if security == "mac":
        with pytest.raises(FetchError) as caught:
            await c.cache.connect(soon())
        assert caught.value.cause == "unauthorised"
    else:  # with b's certificate it is taken for b, whatever it says of itself
        await c.cache.connect(soon())
        assert a.cache.directory.table._lives.keys() == {"b"}  # type: ignore[attr-defined]
    b = await world.site(
        "b", layout, secret=rings["b"], peers={"a": ("127.0.0.1", a.port)}, transport=more
    )
    if security == "mac":
        await b.cache.connect(soon())
        assert a.cache.directory.table._lives.keys() == {"b"}  # type: ignore[attr-defined]


def test_dealt_keys_are_equal_in_a_pair_and_nowhere_else() -> None:
    rings = deal(SECRET, ["a", "b", "c", "d"])
    pairs: dict[bytes, set[tuple[str, str]]] = {}
    for site, ring in rings.items():
        assert set(ring.pairs) == set(rings) - {site}
        for peer, key in ring.pairs.items():
            pairs.setdefault(key, set()).add((site, peer))
    assert len(pairs) == 6 and all(len(ends) == 2 for ends in pairs.values())
    for ends in pairs.values():
        (one, other), back = sorted(ends)
        assert back == (other, one)
    assert deal(SECRET, ["d", "c", "b", "a"]) == rings
    assert deal(OTHER, ["a", "b"])["a"].key("b") != rings["a"].key("b")
    assert SecretRing("a", SECRET).key("b") == rings["a"].key("b")
    assert repr(rings["a"]) == "Keyring(site='a', peers=['b', 'c', 'd'])"


async def test_a_layout_mismatch_names_both_values(world: World) -> None:
    a = await world.site("a", make_layout())
    other = make_layout(dtype="float16", model_fingerprint="bigger")
    b = await world.site("b", other, peers={"a": ("127.0.0.1", a.port)})
    with pytest.raises(FetchError) as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "mismatch"
    for text in ("'float16'", "'float32'", "'bigger'", "'tiny'"):
        assert text in caught.value.message
    await settle()
    assert a.cache.stats()["transport"]["server"]["causes"]["mismatch"] >= 1


async def test_strangers_do_no_harm(world: World) -> None:
    layout = make_layout()
    a, b = await world.pair(layout, transport={"limits": {"handshake_s": 0.2}})
    rng = random.Random(1)
    silent = socket.create_connection(("127.0.0.1", a.port))
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        writer.write(rng.randbytes(rng.randrange(1, 500)))
        writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 2)  # closed, not hanging
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
    silent.settimeout(2)
    assert await asyncio.get_running_loop().run_in_executor(None, silent.recv, 1) == b""
    silent.close()
    refs = make_refs(layout, 3)
    await a.put(refs)
    outcome, _ = await b.pull(refs)
    assert outcome.usable_chunks == 3


async def test_too_many_connections_are_closed_and_counted(world: World) -> None:
    a = await world.site("a", make_layout(), transport={"limits": {"max_connections": 2}})
    held = [await asyncio.open_connection("127.0.0.1", a.port) for _ in range(2)]
    await settle()
    reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
    assert await asyncio.wait_for(reader.read(), 2) == b""
    for _, one in [*held, (reader, writer)]:
        one.close()
    assert a.cache.stats()["transport"]["server"]["causes"] == {"too many connections": 1}


def test_frames_cannot_be_replayed_reordered_or_forged() -> None:
    sender = FrameCodec((b"k" * 32, b"r" * 32))
    receiver = FrameCodec((b"r" * 32, b"k" * 32))
    frames = [sender.pack(Kind.GET, body) for body in (b"one", b"two", b"three")]

    def read(frame: bytes) -> bytes:
        receiver.head(frame[:HEAD_BYTES])
        return receiver.opened(frame)

    assert read(frames[0]) == b"one"
    with pytest.raises(RecordError, match="frame 0 came where 1 must"):
        read(frames[0])
    with pytest.raises(RecordError, match="frame 2 came where 1 must"):
        read(frames[2])
    for at in range(len(frames[1])):
        damaged = bytearray(frames[1])
        damaged[at] ^= 4
        forged = FrameCodec((b"r" * 32, b"k" * 32))
        forged._received = 1
        with pytest.raises(RecordError):
            forged.head(bytes(damaged[:HEAD_BYTES]))
            forged.opened(bytes(damaged))
        if at < HEAD_BYTES:  # seen before anybody waits for a body of the wrong length
            alone = FrameCodec((b"r" * 32, b"k" * 32))
            alone._received = 1
            with pytest.raises(RecordError, match="a frame header is damaged"):
                alone.head(bytes(damaged[:HEAD_BYTES]))
    with pytest.raises(RecordError, match="damaged or forged"):
        stranger = FrameCodec((b"x" * 32, b"y" * 32))
        fresh = FrameCodec((b"r" * 32, b"k" * 32))
        frame = stranger.pack(Kind.GET, b"one")
        fresh.head(frame[:HEAD_BYTES])
        fresh.opened(frame)
    with pytest.raises(RecordError, match="wrong time"):
        FrameCodec((b"r" * 32, b"k" * 32)).head(FrameCodec().pack(Kind.HELLO, b""))
    with pytest.raises(RecordError, match="wrong time"):
        FrameCodec().head(FrameCodec().pack(Kind.GET, b""))
    with pytest.raises(RecordError, match="more than 16384"):
        FrameCodec((b"r" * 32, b"k" * 32)).head(FrameCodec().pack(Kind.JOIN, bytes(16385)))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16 bytes, got 5"):
        TcpTransport("a", make_layout(), b"short")
    with pytest.raises(ConfigError, match="streams: must be ≥ 1"):
        TcpTransport("a", make_layout(), SECRET, streams=0)


async def test_a_bound_port_is_a_clear_error(world: World) -> None:
    a = await world.site("a", make_layout())
    with pytest.raises(CacheError, match=f"{a.port}: the port is already bound") as caught:
        await world.site("b", make_layout(), port=a.port)
    assert "choose another" in caught.value.hint


async def test_socket_options_are_set_and_read_back(world: World) -> None:
    from geokv.cache import SocketOptions

    options = SocketOptions(
        congestion_control="reno", send_buffer_bytes=131072, receive_buffer_bytes=262144
    )
    a, b = await world.pair(make_layout(), transport={"options": options})
    senders = a.cache.stats()["transport"]["server"]["sockets"]
    assert [info["congestion_control"] for info in senders] == ["reno"] * 5
    streams = b.cache.stats()["transport"]["peers"]["a"]["streams"]
    assert set(streams) == {"control", "0", "1", "2", "3"}
    for info in streams.values():
        assert info["congestion_control"] == "reno"
        assert info["send_buffer_bytes"] == 131072
        assert info["receive_buffer_bytes"] == 262144
        assert info["rtt_us"] < 100_000 and info["snd_cwnd_packets"] >= 1
    with pytest.raises(CacheError, match="congestion control 'nosuch' refused"):
        await world.site(
            "c",
            make_layout(),
            transport={"options": SocketOptions(congestion_control="nosuch")},
        )
