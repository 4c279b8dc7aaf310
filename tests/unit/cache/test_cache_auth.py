"""Who may talk: wrong secrets, impostors, other layouts, strangers, replayed frames."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket

import pytest
from cache_sites import SECRET, World, make_layout, make_refs, soon

from geokv.cache import TcpTransport
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, FrameCodec, Kind
from geokv.errors import CacheError, ConfigError, FetchError, RecordError

OTHER = b"the secret of another deployment"


async def settle() -> None:
    """Let the servers see what the clients did."""
    await asyncio.sleep(0.05)


async def test_a_wrong_secret_is_refused_and_counted(world: World) -> None:
    layout = make_layout()
    a = await world.site("a", layout)
    b = await world.site("b", layout, secret=OTHER, peers={"a": ("127.0.0.1", a.port)})
    with pytest.raises(FetchError, match="does not know the secret") as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "unauthorised"
    await settle()
    stats = a.cache.stats()["transport"]["server"]
    assert stats["causes"]["unauthorised"] >= 1 and stats["connections"] == 0


async def test_a_server_that_skips_the_proof_is_refused(world: World) -> None:
    """An impostor who says READY without knowing the secret."""

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from geokv.cache.substrate.tcp.handshake import Hello, Proof
        from geokv.cache.substrate.tcp.wire import encode

        codec = FrameCodec()
        await reader.read(4096)
        hello = Hello(b"n" * 32, "a", 1, make_layout().as_dict())
        writer.write(codec.pack(Kind.CHALLENGE, encode(hello)))
        await reader.read(4096)
        writer.write(codec.pack(Kind.READY, encode(Proof(b"m" * 32))))
        await writer.drain()
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        b = await world.site("b", make_layout(), peers={"a": ("127.0.0.1", port)})
        with pytest.raises(FetchError, match="does not know the deployment's secret") as caught:
            await b.cache.connect(soon())
        assert caught.value.cause == "unauthorised"
        await b.cache.close()


async def test_another_site_at_the_address_is_refused(world: World) -> None:
    layout = make_layout()
    a = await world.site("a", layout)
    b = await world.site("b", layout, peers={"c": ("127.0.0.1", a.port)})
    with pytest.raises(FetchError, match="'a' answers at the address of 'c'") as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "unauthorised"


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
        return receiver.body(frame[:HEAD_BYTES], frame[HEAD_BYTES:])

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
            head = bytes(damaged[:HEAD_BYTES])
            forged.head(head)
            forged.body(head, bytes(damaged[HEAD_BYTES:]))
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
        fresh.body(frame[:HEAD_BYTES], frame[HEAD_BYTES:])
    with pytest.raises(RecordError, match="wrong time"):
        FrameCodec((b"r" * 32, b"k" * 32)).head(FrameCodec().pack(Kind.HELLO, b""))


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
