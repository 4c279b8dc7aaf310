"""Bytes between a socket and given memory."""

from __future__ import annotations

import asyncio
import random
import socket
import time

import pytest

from geokv.cache.substrate.tcp.channel import Channel, Segment, scratch
from geokv.errors import FetchError


def over() -> FetchError:
    return FetchError("unreachable", "the test is over")


async def test_pieces_of_any_size_arrive_in_their_places(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    loop = asyncio.get_running_loop()
    here, there = Channel(ends[0], loop), Channel(ends[1], loop)
    rng = random.Random(3)
    sizes = [0, 1, 17, 300_000, 5, len(scratch()) + 3, 70_000, 0, 2]
    pieces = [rng.randbytes(size) for size in sizes]
    seen = bytearray()
    places = [bytearray(size) if i % 2 else None for i, size in enumerate(sizes)]
    segments = [
        Segment(size, memoryview(place) if place is not None else None, seen.extend)
        for size, place in zip(sizes, places, strict=True)
    ]
    async with asyncio.timeout(5):
        reading = asyncio.ensure_future(there.receive(segments))
        here.write(pieces)  # more than the kernel takes at once
        assert here.sent_bytes < sum(sizes)
        await here.drain()
        await reading
    assert bytes(seen) == b"".join(pieces)
    for piece, place in zip(pieces, places, strict=True):
        assert place is None or bytes(place) == piece
    assert there.received_bytes == here.sent_bytes == sum(sizes)
    here.close(over())
    there.close(over())


async def test_more_pieces_than_one_system_call_takes(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    loop = asyncio.get_running_loop()
    here, there = Channel(ends[0], loop), Channel(ends[1], loop)
    async with asyncio.timeout(5):
        reading = asyncio.ensure_future(there.receive_bytes(3000))
        here.write([bytes([i % 251]) for i in range(3000)])
        await here.drain()
        assert await reading == bytes(i % 251 for i in range(3000))
    here.close(over())
    there.close(over())


async def test_bytes_that_nobody_wants_cost_no_time(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """A readiness callback that spins would stop virtual time."""
    channel = Channel(ends[0], asyncio.get_running_loop())
    reading = asyncio.ensure_future(channel.receive_bytes(4))
    await asyncio.sleep(0.01)
    ends[1].send(b"12345678")
    assert await reading == b"1234"
    before = time.process_time()
    await asyncio.sleep(0.2)
    assert time.process_time() - before < 0.1
    assert await channel.receive_bytes(4) == b"5678"
    channel.close(over())


async def test_whoever_waits_when_it_ends_is_told(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel(ends[0], asyncio.get_running_loop())
    reading = asyncio.ensure_future(channel.receive_bytes(4))
    await asyncio.sleep(0)
    ends[1].send(b"123")
    ends[1].close()
    with pytest.raises(FetchError, match="closed the connection"):
        await asyncio.wait_for(reading, 2)
    for late in (channel.receive_bytes(1), channel.drain()):
        with pytest.raises(FetchError):
            await late
    with pytest.raises(FetchError):
        channel.write([b"x"])


async def test_a_peer_that_does_not_read_blocks_the_writer_until_it_is_closed(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel(ends[0], asyncio.get_running_loop())
    channel.write([bytes(10_000_000)])
    draining = asyncio.ensure_future(channel.drain())
    await asyncio.sleep(0.02)
    assert not draining.done()
    channel.close(FetchError("lease", "the lease has ended"))
    with pytest.raises(FetchError, match="lease has ended"):
        await draining
