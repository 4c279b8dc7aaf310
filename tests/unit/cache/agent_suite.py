"""What every transfer engine behind ``substrate.agent`` must do.

A test file takes these tests with ``from agent_suite import *`` and says with a fixture
``engine`` how agents of its engine are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.handle import Handle, Op
from geokv.cache.substrate.segments import Blob, Descriptor, DescriptorList, Segment
from geokv.clock import now_ns
from geokv.errors import CacheError, RecordError
from geokv.units import NS_PER_S

MIB = 1024 * 1024
PEER = Path(__file__).with_name("agent_peer.py")
Make = Callable[[str], Awaitable[Agent]]


def soon(seconds: float = 10.0) -> int:
    return now_ns() + round(seconds * NS_PER_S)


@lru_cache
def noise(seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(8 * MIB)


@dataclass
class Engine:
    """How a test makes agents.

    Args:
        kind: as ``agent_peer.py`` knows it.
        big: bytes of a transfer that lasts long enough to be disturbed.
    """

    kind: str
    make: Make
    big: int = 256 * MIB
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def peer(self, size: int) -> tuple[asyncio.subprocess.Process, bytes]:
        """An agent "b" in a process of its own, with ``size`` bytes of 7; its blob."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PEER),
            self.kind,
            str(size),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while line := await process.stdout.readline():
                # Engines print too.
                if line.startswith(b"blob "):
                    return process, bytes.fromhex(line[5:].decode())
        raise AssertionError("the other process did not start")


@dataclass(repr=False)  # 16 MiB as text is no help to anybody
class Two:
    """Agents a and b, each with a segment, knowing each other."""

    a: Agent
    b: Agent
    here: bytearray
    there: bytearray
    mine: Segment
    theirs: Segment

    def prepare(self, op: Op, *ranges: tuple[int, int, int], notice: bytes = b"") -> Handle:
        """Ranges are (offset here, offset there, length)."""
        return self.a.prepare(
            op,
            DescriptorList.of(*(self.mine.at(at, n) for at, _, n in ranges)),
            DescriptorList.of(*(Descriptor(self.theirs.id, at, n) for _, at, n in ranges)),
            "b",
            notice,
        )


@pytest.fixture
async def two(engine: Engine) -> AsyncIterator[Two]:
    a, b = await engine.make("a"), await engine.make("b")
    here, there = bytearray(8 * MIB), bytearray(noise(1))
    made = Two(a, b, here, there, a.register(memoryview(here)), b.register(memoryview(there)))
    a.load_remote(b.metadata())
    b.load_remote(a.metadata())
    yield made
    await a.close()
    await b.close()


async def done(handle: Handle, seconds: float = 20.0) -> None:
    handle.post(soon(seconds))
    assert await handle.wait(soon(seconds + 1)) == "DONE", handle.error


RANGES = ((0, 5 * MIB + 3, 2 * MIB), (3 * MIB + 1, 17, 1), (4 * MIB, MIB, 3 * MIB + 77))


async def test_a_read_brings_scattered_ranges(two: Two) -> None:
    untouched = bytes(two.there)
    await done(two.prepare("READ", *RANGES))
    want = bytearray(len(two.here))
    for here, there, length in RANGES:
        want[here : here + length] = untouched[there : there + length]
    assert two.here == want
    assert two.there == untouched


async def test_a_write_puts_scattered_ranges(two: Two) -> None:
    two.here[:] = noise(2)
    want = bytearray(two.there)
    for here, there, length in RANGES:
        want[there : there + length] = two.here[here : here + length]
    handle = two.prepare("WRITE", *RANGES, notice=b"written")
    await done(handle)
    assert two.there == want
    # The notice comes after the bytes.
    assert await notices(two.b) == [("a", b"written")]


async def notices(agent: Agent, seconds: float = 5.0) -> list[tuple[str, bytes]]:
    came: list[tuple[str, bytes]] = []
    deadline = soon(seconds)
    while not came and now_ns() < deadline:
        came = agent.notifications()
        await asyncio.sleep(0.005)
    return came


async def test_a_read_tells_the_other_side_when_it_is_done(two: Two) -> None:
    handle = two.prepare("READ", (0, 0, MIB), notice=b"\x00read\xff")
    assert two.b.notifications() == []
    await done(handle)
    assert await notices(two.b) == [("a", b"\x00read\xff")]
    two.b.notify("a", b"thanks")
    assert await notices(two.a) == [("b", b"thanks")]


async def test_a_handle_can_be_posted_again_but_not_while_active(two: Two) -> None:
    handle = two.prepare("READ", (0, 0, 8 * MIB))
    assert handle.state == "INIT"
    for turn in range(3):
        two.there[:4] = bytes([turn] * 4)
        assert handle.post(soon()) == "PROC"
        with pytest.raises(CacheError, match="active already"):
            handle.post(soon())
        assert await handle.wait(soon()) == "DONE"
        assert two.here[:4] == bytes([turn] * 4)
    await handle.release()
    with pytest.raises(CacheError, match="released"):
        handle.post(soon())


async def test_many_at_once(two: Two) -> None:
    size = 128 * 1024
    handles = [two.prepare("READ", (i * size, (63 - i) * size, size)) for i in range(64)]
    for handle in handles:
        handle.post(soon(30))
    assert {await handle.wait(soon(31)) for handle in handles} == {"DONE"}
    for i in range(64):
        assert two.here[i * size : (i + 1) * size] == two.there[(63 - i) * size : (64 - i) * size]


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ((0, 10), (8 * MIB - 9, 10), "which has 8388608"),
        ((8 * MIB, 1), (0, 1), "which has 8388608"),
        ((-1, 1), (0, 1), "which has 8388608"),
        ((0, 0), (0, 0), "which has 8388608"),
        ((0, 10), (0, 11), "10 bytes, 11 there"),
    ],
)
async def test_what_is_out_of_range_is_refused_at_preparation(
    two: Two, here: tuple[int, int], there: tuple[int, int], said: str
) -> None:
    with pytest.raises(CacheError, match=said):
        two.a.prepare(
            "READ",
            DescriptorList.of(two.mine.at(*here)),
            DescriptorList.of(Descriptor(two.theirs.id, *there)),
            "b",
        )


async def test_lists_and_agents_that_cannot_be(two: Two) -> None:
    one, other = DescriptorList.of(two.mine.at(0, 1)), DescriptorList.of(Descriptor(1, 0, 1))
    with pytest.raises(CacheError, match="1 local descriptors, 0 remote"):
        two.a.prepare("READ", one, DescriptorList(()), "b")
    with pytest.raises(CacheError, match="'c' is not known"):
        two.a.prepare("READ", one, other, "c")
    with pytest.raises(CacheError, match="segment 99 of 'b' is not known"):
        two.a.prepare("READ", one, DescriptorList.of(Descriptor(99, 0, 1)), "b")
    with pytest.raises(CacheError, match="is no VRAM"):
        two.a.prepare("READ", DescriptorList(one.items, "VRAM"), other, "b")
    with pytest.raises(CacheError, match="has no VRAM memory"):
        two.a.register(memoryview(bytearray(8)), "VRAM")
    with pytest.raises(CacheError, match="empty memory"):
        two.a.register(memoryview(b""))
    constant = two.a.register(memoryview(bytes(8)))
    with pytest.raises(CacheError, match="cannot be written"):
        two.a.prepare("READ", DescriptorList.of(constant.at(0, 1)), other, "b")


async def test_a_blob_discloses_no_segment_of_another_tenant(two: Two) -> None:
    for tenant in ("acme", "rival"):
        two.b.register(memoryview(bytearray(64)), tenant=tenant)
    said = {
        tenants: msgspec.msgpack.decode(two.b.metadata(tenants), type=Blob)
        for tenants in ((), ("acme",), ("acme", "rival"))
    }
    assert [len(blob.segments) for blob in said.values()] == [1, 2, 3]
    hidden = {one.key for one in said["acme", "rival"].segments} - {
        one.key for one in said[("acme",)].segments
    }
    assert len(hidden) == 1 and hidden.pop() not in two.b.metadata(("acme",))
    two.a.load_remote(two.b.metadata(("acme",)))
    rival = next(one for one in two.b._segments.values() if one.tenant == "rival")
    with pytest.raises(CacheError, match="is not known"):
        two.a.prepare(
            "READ",
            DescriptorList.of(two.mine.at(0, 8)),
            DescriptorList.of(Descriptor(rival.id, 0, 8)),
            "b",
        )


async def test_blobs_that_are_none(two: Two) -> None:
    blob = msgspec.msgpack.decode(two.b.metadata(), type=Blob)
    with pytest.raises(RecordError, match="not the metadata"):
        two.a.load_remote(b"\x93garbage")
    with pytest.raises(RecordError, match="version 9"):
        two.a.load_remote(msgspec.msgpack.encode(msgspec.structs.replace(blob, version=9)))
    with pytest.raises(CacheError, match="uses other"):
        two.a.load_remote(msgspec.msgpack.encode(msgspec.structs.replace(blob, backend="other")))
    with pytest.raises(CacheError, match="its own metadata"):
        two.b.load_remote(two.b.metadata())
    old = msgspec.structs.replace(blob, incarnation=blob.incarnation - 1)
    with pytest.raises(CacheError, match="earlier life"):
        two.a.load_remote(msgspec.msgpack.encode(old))
    await done(two.prepare("READ", (0, 0, 100)))


async def test_an_invalidated_agent_is_gone_until_it_is_loaded_again(two: Two) -> None:
    handle = two.prepare("READ", (0, 0, 8 * MIB))
    handle.post(soon())
    two.a.invalidate("b")
    assert handle.state == "ERR" and handle.error is not None
    assert handle.error.cause == "unreachable"
    await handle.release()
    seen = bytes(two.here)
    await asyncio.sleep(0.1)
    assert two.here == seen  # nothing lands any more
    with pytest.raises(CacheError, match="'b' is not known"):
        two.prepare("READ", (0, 0, 1))
    two.a.load_remote(two.b.metadata())
    await done(two.prepare("READ", (0, 0, 8 * MIB)))
    assert two.here == two.there


async def test_segments_come_and_go(two: Two) -> None:
    more = bytearray(b"more of it")
    segment = two.b.register(memoryview(more))
    two.a.load_remote(two.b.metadata())
    handle = two.a.prepare(
        "READ",
        DescriptorList.of(two.mine.at(0, 10)),
        DescriptorList.of(Descriptor(segment.id, 0, 10)),
        "b",
    )
    await done(handle)
    assert two.here[:10] == more
    two.b.deregister(segment)
    with pytest.raises(CacheError, match="not registered"):
        two.b.deregister(segment)
    busy = two.prepare("READ", (0, 0, 8 * MIB))
    busy.post(soon())
    with pytest.raises(CacheError, match="active transfer uses"):
        two.a.deregister(two.mine)
    await busy.wait(soon())


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = soon(seconds)
    while not condition():
        assert now_ns() < deadline, "it never happened"
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
async def test_an_agent_that_dies_or_stalls_in_mid_transfer(engine: Engine, sign: int) -> None:
    a = await engine.make("a")
    process, blob = await engine.peer(engine.big)
    here = bytearray(engine.big)
    mine = a.register(memoryview(here))
    try:
        a.load_remote(blob)
        theirs = next(iter(msgspec.msgpack.decode(blob, type=Blob).segments))

        def prepare() -> Handle:
            return a.prepare(
                "READ",
                DescriptorList.of(mine.at(0, engine.big)),
                DescriptorList.of(Descriptor(theirs.id, 0, engine.big)),
                "b",
            )

        handle = prepare()
        handle.post(soon(1 if a.stops else 3))
        await until(
            lambda: any(here[i] for i in range(0, len(here), MIB // 4)) or handle.state != "PROC"
        )
        os.kill(process.pid, sign)
        killed = now_ns()
        assert await handle.wait(soon(20)) == "ERR", "too fast to be disturbed"
        assert handle.error is not None and handle.error.cause in {"unreachable", "timeout"}
        assert now_ns() - killed < 5 * NS_PER_S
        assert a.remotes == {}  # what was known of it is not believed any more
        if sign == signal.SIGSTOP:
            if not a.stops:
                with pytest.raises(CacheError, match="still holds its memory"):
                    await handle.release(0.2)
                os.kill(process.pid, signal.SIGCONT)
            await handle.release()
            os.kill(process.pid, signal.SIGCONT)
        await handle.release()
        seen = bytes(here)
        assert not a.stops or seen != bytes([7]) * engine.big
        await asyncio.sleep(0.3)
        assert here == seen
        # Its next life is another agent of the same name.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        _, blob = await engine.peer(engine.big)
        a.load_remote(blob)
        theirs = next(iter(msgspec.msgpack.decode(blob, type=Blob).segments))
        with pytest.raises(CacheError, match="released"):
            handle.post(soon())
        await done(prepare(), 30)
        assert here == bytes([7]) * engine.big
    finally:
        await a.close()


@pytest.fixture(autouse=True)
async def no_process_stays(engine: Engine) -> AsyncIterator[None]:
    yield
    for process in engine.processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


__all__ = [name for name in dict(globals()) if name.startswith("test_")] + [
    "Any",
    "Engine",
    "no_process_stays",
    "two",
]
