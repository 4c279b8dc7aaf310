"""Bytes that no honest peer sends, against the parser, a server and a client.

    python tests/fuzz/wire.py [--frames 1000000] [--seed 1] [--case ROLE:NUMBER]

Three roles share the frames:

``parser``  bodies, headers and records, mutated, without a connection
``server``  a hostile client: a stranger, or an insider who has the keys, whose MACs and
            CRCs are right and whose contents are not
``client``  a hostile server, of the same two kinds

Every case is made from the seed and its number alone, and has a deadline. Afterwards
nothing may be left: no pin, no reserved slot, no descriptor, no task that failed, no
memory. What a client takes for a chunk must be that chunk. Exit status 1 if any of it
does not hold; the case is named so that ``--case`` runs it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import os
import random
import resource
import socket
import struct
import sys
import time
import tracemalloc
import types
import typing
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from geokv.cache import (
    ChunkLayout,
    ChunkRef,
    DramTier,
    LocalDirectory,
    Lru,
    SharedCache,
    chunk_refs,
    root_key,
)
from geokv.cache import record as records
from geokv.cache.substrate.tcp import TcpTransport, handshake, wire
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.handshake import Identity, admit, greet, receive_frame
from geokv.cache.substrate.tcp.keyring import deal
from geokv.cache.substrate.tcp.wire import FrameCodec, Kind
from geokv.cache.substrate.transport import Landing
from geokv.clock import now_ns
from geokv.errors import ConfigError, FetchError, GeokvError, RecordError
from geokv.units import NS_PER_S

LAYOUT = ChunkLayout(
    model_fingerprint="fuzz",
    dtype="float32",
    layers=2,
    kv_heads=1,
    head_dim=4,
    block_tokens=8,
    chunk_tokens=8,
    groups=2,
    wire_bytes_per_token=128,
)
TENANT = "acme"
REFS = chunk_refs(root_key("fuzz", b"salt"), range(8 * 12), 8, 8, TENANT)
HERE, ABSENT = REFS[:8], REFS[8:]
RINGS = deal(b"a secret of the fuzzer", ["a", "b"])
CASE_S = 5.0
ANSWER_S = 0.2
AT_ONCE = 16
# Of so many cases at once: a frame may have 1 MiB, and each end holds one per connection.
MOST_PEAK_BYTES = AT_ONCE * 4 * 2**20
MOST_ADDRESS_SPACE_BYTES = 4 * 2**30
_STRUCTS = [
    one
    for module in (wire, handshake)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, msgspec.Struct) and one is not msgspec.Struct
]
_BODY = {**handshake.MESSAGES, **wire.MESSAGES}
_INTS = (0, 1, -1, 7, 255, 2**16, 2**31, 2**32 - 1, 2**32, 2**34, 2**34 + 1, 2**63 - 1, 2**64 - 1)


class Finding(Exception):
    """A promise that did not hold."""


@dataclass
class Tally:
    """What was done and seen."""

    frames: Counter[str] = field(default_factory=Counter)
    cases: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    peak_bytes: int = 0
    chunks: int = 0


# -- making bytes --------------------------------------------------------------


def content(ref: ChunkRef) -> bytes:
    """Stands for the KV of a chunk."""
    return random.Random(ref.key).randbytes(LAYOUT.real_bytes)


def header(ref: ChunkRef) -> records.ChunkHeader:
    """As an honest site of incarnation 1 would send it."""
    sums = records.checksums(LAYOUT, content(ref))
    return records.make_header(ref, LAYOUT, sums, 1, 1).stamped(1, 1, 10**10)


def payload(ref: ChunkRef) -> bytes:
    from geokv.cache.filler import group_filler

    data = memoryview(content(ref))
    return b"".join(
        bytes(data[piece]) + bytes(fill)
        for piece, fill in zip(LAYOUT.group_slices, group_filler(LAYOUT), strict=True)
    )


def mutated(rng: random.Random, data: bytes) -> bytes:
    """``data`` after one to four accidents."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(7):
            case 0 if made:
                made[at % len(made)] ^= 1 << rng.randrange(8)
            case 1:
                made[at:at] = rng.randbytes(rng.randint(1, 16))
            case 2:
                del made[at : at + rng.randint(1, 16)]
            case 3:
                del made[at:]
            case 4:
                value = rng.choice(_INTS) % 2**32
                made[at : at + 4] = value.to_bytes(4, rng.choice(("big", "little")))
            case 5:
                made[at:at] = made[: rng.randint(0, 64)]
            case _:
                made[at : at + 8] = rng.randbytes(8)
    return bytes(made)


def invented(rng: random.Random, kind: Any) -> Any:
    """A value of a field's type, seldom a sensible one."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return invented(rng, rng.choice(typing.get_args(kind)))
    if origin in (tuple, list):
        item = typing.get_args(kind)[0]
        return [invented(rng, item) for _ in range(rng.choice((0, 1, 2, 40)))]
    if origin is dict or kind is dict:
        known: dict[str, Any] = dict(LAYOUT.as_dict())
        known[rng.choice([*known, "x"])] = rng.choice((None, -1, 2**62, "y", [], 1.5))
        return known
    if kind is bool:
        return rng.random() < 0.5
    if kind is int:
        return rng.choice(_INTS) if rng.random() < 0.5 else rng.randrange(100)
    if kind is bytes:
        length = rng.choice((0, 1, 16, 16, 32, 300, 70_000))
        return rng.choice(REFS).key if length == 16 else rng.randbytes(length)
    if kind is str:
        return rng.choice(("", TENANT, "a", "b", "none", "join", "ü" * 200, "x" * 5000))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return invented_struct(rng, kind)
    return None


def invented_struct(rng: random.Random, kind: type[msgspec.Struct]) -> list[Any]:
    hints = typing.get_type_hints(kind)
    return [invented(rng, hints[name]) for name in kind.__struct_fields__]


def invented_body(rng: random.Random, kind: Kind) -> bytes:
    """Mostly the struct that belongs to ``kind``, or another, or no struct at all."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.choice((0, 1, 8, 9, 200, 5000)))
    if kind is Kind.CHUNK:
        packed = header(rng.choice(REFS)).pack()
        packed = mutated(rng, packed) if rng.random() < 0.7 else packed
        return wire.chunk_body(rng.choice((0, 1, 2, 2**64 - 1)), packed)
    struct_ = _BODY[kind]
    if rng.random() < 0.1:
        struct_ = rng.choice(_STRUCTS)
    body = msgspec.msgpack.encode(invented_struct(rng, struct_))
    return mutated(rng, body) if rng.random() < 0.2 else body


def forged(rng: random.Random, codec: FrameCodec, kind: int, body: bytes) -> bytes:
    """A frame whose CRC and MAC are right and whose header may lie."""
    lie = rng.random()
    version, reserved, length, sequence = wire.VERSION, 0, len(body), codec._sent
    if lie < 0.05:
        length = rng.choice((0, len(body) + 1, 2**20, 2**20 + 1, 2**31, 2**32 - 1))
    elif lie < 0.08:
        sequence = rng.choice((0, sequence + 1, max(0, sequence - 1), 2**64 - 1))
    elif lie < 0.1:
        version, reserved = rng.choice(((0, 0), (255, 0), (wire.VERSION, 1)))
    head = struct.pack("!BBHIQ", kind, version, reserved, length, sequence)
    frame = head + struct.pack("!I", zlib.crc32(head)) + body
    codec._sent += 1
    if codec._send_mac is None:
        return frame
    mac = codec._send_mac.copy()
    mac.update(frame)
    return frame + mac.digest()


def random_kind(rng: random.Random) -> int:
    return rng.choice(list(Kind)) if rng.random() < 0.97 else rng.choice((0, 6, 15, 200))


# -- the parser ----------------------------------------------------------------


def parser_case(rng: random.Random, tally: Tally) -> None:
    """One frame through everything that looks at bytes without a connection."""
    tally.frames["parser"] += 1
    match rng.randrange(4):
        case 0:  # a frame as it comes from the socket
            keys = (b"k" * 32, b"k" * 32) if rng.random() < 0.7 else None
            sender, receiver = FrameCodec(keys), FrameCodec(keys)
            kind = random_kind(rng)
            body = invented_body(rng, Kind(kind)) if kind in Kind._value2member_map_ else b""
            frame = forged(rng, sender, kind, body)
            if rng.random() < 0.5:
                frame = mutated(rng, frame)
            if len(frame) < wire.HEAD_BYTES:
                return
            head = frame[: wire.HEAD_BYTES]
            with contextlib.suppress(RecordError):
                got, length = receiver.head(head)
                rest = frame[wire.HEAD_BYTES :][: length + receiver.mac_bytes]
                if len(rest) == length + receiver.mac_bytes:
                    look_at(got, receiver.opened(head + rest))
        case 1:  # a record header
            packed = header(rng.choice(REFS)).pack()
            raw = mutated(rng, packed)
            try:
                parsed = records.parse(raw)
            except RecordError:
                return
            if parsed.pack() != raw:
                raise Finding("a record header that does not pack to what was parsed")
        case 2:  # any struct from any bytes
            kind = rng.choice(list(Kind))
            look_at(kind, invented_body(rng, kind))
        case _:  # what a peer says of its layout
            with contextlib.suppress(ConfigError):
                made = ChunkLayout.from_dict(invented(rng, dict))
                if made.as_dict() != LAYOUT.as_dict() and not LAYOUT.mismatch(made):
                    raise Finding("another layout that does not differ")


def look_at(kind: Kind, body: bytes) -> None:
    """Decode a body as every struct; only ``RecordError`` may come of it."""
    for struct_ in _STRUCTS:
        with contextlib.suppress(RecordError):
            wire.decode(body, struct_)
    if kind is Kind.CHUNK:
        with contextlib.suppress(RecordError):
            records.parse(wire.split_chunk(body)[1])


# -- a hostile client ----------------------------------------------------------


class Victim:
    """A site that serves eight chunks and a call, and takes what is pushed to it."""

    def __init__(self) -> None:
        self.tier = DramTier(LAYOUT, 16 * LAYOUT.wire_bytes, Lru())
        self.transport = TcpTransport(
            "a",
            LAYOUT,
            RINGS["a"],
            incarnation=1,
            limits={"handshake_s": 0.5, "idle_s": 1.0, "send_s": 1.0},
        )
        self.cache = SharedCache("a", LAYOUT, self.tier, LocalDirectory(), self.transport)
        self.port = 0

    async def start(self) -> Victim:
        async def echo(caller: Any, body: bytes) -> bytes:
            return body

        for ref in HERE:
            await self.cache.store(ref, functools.partial(fill, ref), publish=False)
        handlers = {"join": echo}
        source = self.cache._source
        self.port = await self.transport.serve("127.0.0.1", 0, source, handlers, self)
        return self

    def reserve(self, header: records.ChunkHeader, peer: str, life: int) -> Landing | str:
        """As a sink: room for a pushed chunk."""
        ref = next((one for one in REFS if one.key == header.key), None)
        if ref is None or records.verify(header, ref, LAYOUT):
            return "mismatch"
        if ref.key in self.tier or self.tier.pending(ref.key) is not None:
            return "present"
        slot = self.tier.reserve(ref.key)
        return Landing(
            slot.view,
            lambda header: self.tier.commit(slot, header),
            lambda cause: self.tier.abort(slot, cause),
        )

    def check(self) -> None:
        stats = self.tier.stats()
        if stats["pinned"] or stats["reserved"] or len(self.tier) < len(HERE):
            raise Finding(f"pools are not as before: {stats}")
        self.tier.check_integrity(deep=True)
        for key in list(self.tier.keys()):
            with self.tier.get(key) as entry:  # type: ignore[union-attr]
                if bytes(entry.view) != content(next(ref for ref in REFS if ref.key == key)):
                    raise Finding(f"chunk {key.hex()} has other bytes than it should")


def fill(ref: ChunkRef, view: memoryview) -> None:
    view[:] = content(ref)


async def dial(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    return sock


async def swallow(sock: socket.socket, limit_s: float) -> None:
    """Read and forget until the other end has closed, for ``limit_s``, or 4 MiB: an insider
    may ask for 16 GiB of filler."""
    loop = asyncio.get_running_loop()
    rest = 4 * 2**20
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(limit_s):
            while rest > 0 and (data := await loop.sock_recv(sock, 65536)):
                rest -= len(data)


def requests(rng: random.Random, codec: FrameCodec, count: int) -> bytes:
    """Requests of an insider: honest for a while, then something else."""
    made = []
    hostile = rng.randrange(count + 1)
    for number in range(count):
        if number < hostile:
            ref = rng.choice(REFS)
            if rng.random() < 0.1:
                made.append(push(rng, codec, number, ref))
                continue
            honest = rng.choice(
                (
                    (Kind.GET, wire.Get(number, ref.key, rng.choice((TENANT, "rival")))),
                    (Kind.CALL, wire.Call(number, rng.choice(("join", "no")), rng.randbytes(9))),
                    (Kind.WARM, wire.Warm(number, rng.randrange(3000))),
                )
            )
            made.append(codec.pack(honest[0], wire.encode(honest[1])))
            continue
        kind = random_kind(rng)
        body = invented_body(rng, Kind(kind)) if kind in Kind._value2member_map_ else b""
        made.append(forged(rng, codec, kind, body[: wire.MAX_BODY_BYTES]))
    data = b"".join(made)
    if rng.random() < 0.3:
        at = rng.randrange(len(data) + 1)
        data = data[:at] + mutated(rng, data[at:])
    return data


def push(rng: random.Random, codec: FrameCodec, number: int, ref: ChunkRef) -> bytes:
    """An offer, and its payload without waiting to hear that it is wanted."""
    offer = codec.pack(Kind.OFFER, wire.encode(wire.Offer(number, header(ref).pack())))
    if rng.random() < 0.3:
        return offer  # and never a byte of it
    data = payload(ref) if rng.random() < 0.7 else mutated(rng, payload(ref))
    return offer + codec.pack(Kind.PAYLOAD, wire.encode(wire.Ticket(number, len(data)))) + data


async def server_case(rng: random.Random, victim: Victim, tally: Tally) -> None:
    """One connection of a hostile client."""
    loop = asyncio.get_running_loop()
    sock = await dial(victim.port)
    try:
        insider = rng.random() < 0.8
        count = rng.randint(1, 60) if insider else rng.randint(1, 4)
        tally.frames["server"] += count
        if insider:
            channel = Channel(sock, loop)
            session = await greet(channel, Identity("b", 1, LAYOUT, RINGS["b"]), "a")
            channel.unwatch()
            data = requests(rng, session.codec, count)
        else:
            data = b"".join(strange(rng) for _ in range(count))
        reading = asyncio.ensure_future(swallow(sock, CASE_S / 2))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CASE_S / 2):
                await loop.sock_sendall(sock, data)
            if rng.random() < 0.9:
                sock.shutdown(socket.SHUT_WR)
        if rng.random() < 0.1:
            reading.cancel()  # and away, without reading to the end
        await asyncio.gather(reading, return_exceptions=True)
    finally:
        sock.close()


def strange(rng: random.Random) -> bytes:
    """A frame of somebody without keys."""
    codec = FrameCodec()
    codec._sent = rng.choice((0, 0, 0, 1))
    kind = rng.choice((Kind.HELLO, Kind.HELLO, Kind.JOIN, Kind.GET))
    frame = forged(rng, codec, kind, invented_body(rng, kind)[:70_000])
    return rng.choice((frame, mutated(rng, frame), rng.randbytes(rng.randrange(1, 600))))


# -- a hostile server ----------------------------------------------------------


def answer(rng: random.Random, codec: FrameCodec, kind: Kind, body: bytes) -> bytes | None:
    """What a hostile server says to a request; ``None`` hangs up."""
    try:
        request: Any = wire.decode(
            body, {Kind.GET: wire.Get, Kind.CALL: wire.Call, Kind.WARM: wire.Warm}[kind]
        )
    except (KeyError, RecordError):
        return None
    ref = next((one for one in REFS if kind is Kind.GET and one.key == request.key), REFS[0])
    mood = rng.random()
    if mood < 0.90:
        return honest_answer(codec, request, ref)
    if mood < 0.92:
        whole = honest_answer(codec, request, ref)
        return mutated(rng, whole)
    if mood < 0.95:  # right frame, wrong record
        packed = mutated(rng, header(ref).pack())
        made = codec.pack(Kind.CHUNK, wire.chunk_body(request.id, packed))
        return made + payload(ref)
    if mood < 0.96:  # another's record
        other = rng.choice(REFS)
        made = codec.pack(Kind.CHUNK, wire.chunk_body(request.id, header(other).pack()))
        return made + payload(other)
    if mood < 0.99:
        other_kind = random_kind(rng)
        known = other_kind in Kind._value2member_map_
        made_body = invented_body(rng, Kind(other_kind)) if known else b""
        return forged(rng, codec, other_kind, made_body[: wire.MAX_BODY_BYTES])
    if mood < 0.992:
        return b""  # says nothing, for ever
    return None


def honest_answer(codec: FrameCodec, request: Any, ref: ChunkRef) -> bytes:
    if isinstance(request, wire.Get):
        if ref in ABSENT:
            return codec.pack(Kind.MISS, wire.encode(wire.Miss(request.id, "absent")))
        made = codec.pack(Kind.CHUNK, wire.chunk_body(request.id, header(ref).pack()))
        return made + payload(ref)
    if isinstance(request, wire.Call):
        return codec.pack(Kind.REPLY, wire.encode(wire.Reply(request.id, "", request.body)))
    from geokv.cache.filler import filler

    fill = codec.pack(Kind.FILL, wire.encode(request))
    return fill + bytes(filler(max(0, min(request.n_bytes, 10**6))))


async def hostile(rng: random.Random, sock: socket.socket, tally: Tally) -> None:
    """One connection of a hostile server."""
    loop = asyncio.get_running_loop()
    channel = Channel(sock, loop)
    end = FetchError("unreachable", "the hostile server has had enough")
    try:
        async with asyncio.timeout(CASE_S):
            if rng.random() < 0.1:
                tally.frames["client"] += 1
                channel.write([strange(rng)])
                await channel.receive_bytes(10_000)
                return
            session = await admit(channel, Identity("a", 1, LAYOUT, RINGS["a"]))
            while True:
                kind, body = await receive_frame(channel, session.codec)
                tally.frames["client"] += 1
                said = answer(rng, session.codec, kind, body)
                if said is None:
                    return
                channel.write([said])
                await channel.drain()
    except (GeokvError, TimeoutError):
        return
    finally:
        channel.close(end)


async def client_case(rng: random.Random, tally: Tally) -> None:
    """A site that fetches from a hostile server; every wait ends, no wrong byte is taken."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    talks: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        while True:
            sock, _ = await loop.sock_accept(listener)
            sock.setblocking(False)
            talks.add(loop.create_task(hostile(random.Random(rng.random()), sock, tally)))

    accepting = loop.create_task(accept())
    transport = TcpTransport("b", LAYOUT, RINGS["b"], streams=1, in_flight=8, incarnation=1)
    transport.add_peer("a", "127.0.0.1", listener.getsockname()[1])
    asked: list[tuple[ChunkRef, bytearray, Any]] = []
    try:
        deadline = now_ns() + round(ANSWER_S * NS_PER_S)
        with contextlib.suppress(GeokvError):
            await transport.connect("a", deadline)
        for _ in range(rng.randint(4, 60)):
            ref = rng.choice(REFS)
            memory = bytearray(b"\xee" * LAYOUT.real_bytes)
            transfer = transport.submit("a", ref, memoryview(memory), deadline)
            asked.append((ref, memory, transfer))
            if rng.random() < 0.01:
                transfer.done.cancel()
        calls = [
            transport.call("a", "join", b"body", deadline),
            transport.warm("a", 5000, deadline),
        ]
        ends = await asyncio.gather(
            *calls, *(transfer.done for _, _, transfer in asked), return_exceptions=True
        )
        for end in ends:
            tally.ends[getattr(end, "cause", type(end).__name__)] += 1
            if isinstance(end, BaseException) and not isinstance(
                end, GeokvError | asyncio.CancelledError
            ):
                raise Finding(f"a transfer ended in {end!r}")
        for (ref, memory, _), end in zip(asked, ends[2:], strict=True):
            if isinstance(end, records.ChunkHeader):
                tally.chunks += 1
                if bytes(memory) != content(ref) or end.key != ref.key:
                    raise Finding("bytes that are not the chunk's were taken for it")
    finally:
        await transport.close()
        accepting.cancel()
        for talk in talks:
            talk.cancel()
        await asyncio.gather(accepting, *talks, return_exceptions=True)
        listener.close()


# -- the run -------------------------------------------------------------------


class Fuzzer:
    """Runs cases of each role until so many frames have gone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tally = Tally()
        self._failed: list[str] = []

    def rng(self, role: str, number: int) -> random.Random:
        return random.Random(f"{self.seed} {role} {number}")

    def parser(self, frames: int, first: int = 0) -> None:
        """``frames`` cases of the parser."""
        for number in range(first, first + frames):
            try:
                parser_case(self.rng("parser", number), self.tally)
            except Exception as error:
                raise Finding(f"--case parser:{number}: {error!r}") from error
            self.tally.cases["parser"] += 1

    async def sessions(self, role: str, frames: int, first: int = 0) -> None:
        """Cases of ``server`` or ``client`` until they have sent ``frames``."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_error)
        victim = await Victim().start()
        descriptors = 0
        number = first
        goal = self.tally.frames[role] + frames
        try:
            while self.tally.frames[role] < goal:
                await self._together(role, range(number, number + AT_ONCE), victim)
                number += AT_ONCE
                if number == first + 2 * AT_ONCE:
                    descriptors = await self._rest()
                if number % (32 * AT_ONCE) == 0:
                    victim.check()
                    self._look(role, number, await self._rest(), descriptors)
            self._look(role, number, await self._rest(), descriptors)
            victim.check()
        finally:
            await victim.cache.close()

    async def _together(self, role: str, numbers: range, victim: Victim) -> None:
        """Cases side by side; most of their time is waiting."""
        watched = numbers.start % (8 * AT_ONCE) == 0
        if watched:
            tracemalloc.start()
        try:
            cases = (self._case(role, number, victim) for number in numbers)
            ends = await asyncio.gather(*cases, return_exceptions=True)
        finally:
            if watched:
                peak = tracemalloc.get_traced_memory()[1]
                self.tally.peak_bytes = max(self.tally.peak_bytes, peak)
                tracemalloc.stop()
        found = next((end for end in ends if isinstance(end, BaseException)), None)
        if found is not None:
            raise found
        if self.tally.peak_bytes > MOST_PEAK_BYTES:
            raise Finding(f"{role} {numbers}: held {self.tally.peak_bytes} bytes")
        if self._failed:
            raise Finding(f"{role} {numbers}: {self._failed[0]}")

    async def _case(self, role: str, number: int, victim: Victim) -> None:
        rng = self.rng(role, number)
        started = time.monotonic()
        try:
            async with asyncio.timeout(CASE_S):
                if role == "server":
                    await server_case(rng, victim, self.tally)
                else:
                    await client_case(rng, self.tally)
        except Finding as finding:
            raise Finding(f"--case {role}:{number}: {finding}") from None
        except Exception as error:
            raise Finding(f"--case {role}:{number}: {error!r}") from error
        self.tally.slowest_s = max(self.tally.slowest_s, time.monotonic() - started)
        self.tally.cases[role] += 1

    async def _rest(self) -> int:
        """Let everything end; how many descriptors are open."""
        await asyncio.sleep(0.6)
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def _look(self, role: str, number: int, now: int, before: int) -> None:
        if before and now > before + 8:
            raise Finding(f"{role} by case {number}: {now} descriptors are open, {before} before")
        if self._failed:
            raise Finding(f"{role} by case {number}: {self._failed[0]}")

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failed.append(f"{context.get('message')}: {context.get('exception')!r}")


def run(frames: int, seed: int, say: Callable[[str], None] = lambda line: None) -> Tally:
    """Half of the frames for the parser, a quarter for each side of a connection.

    Raises:
        Finding: a promise did not hold; the case is named.
    """
    resource.setrlimit(
        resource.RLIMIT_AS, (MOST_ADDRESS_SPACE_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1])
    )
    fuzzer = Fuzzer(seed)
    started = time.monotonic()
    fuzzer.parser(frames // 2)
    say(f"parser: {fuzzer.tally.frames['parser']} frames, {time.monotonic() - started:.0f} s")
    for role in ("server", "client"):
        asyncio.run(fuzzer.sessions(role, frames // 4))
        say(
            f"{role}: {fuzzer.tally.frames[role]} frames in {fuzzer.tally.cases[role]} "
            f"connections, {time.monotonic() - started:.0f} s"
        )
    return fuzzer.tally


async def one_case(fuzzer: Fuzzer, role: str, number: int) -> None:
    asyncio.get_running_loop().set_exception_handler(fuzzer._on_error)
    victim = await Victim().start()
    await fuzzer._case(role, number, victim)
    fuzzer._look(role, number, await fuzzer._rest(), 0)
    victim.check()
    await victim.cache.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", metavar="ROLE:NUMBER", help="run this one alone")
    args = parser.parse_args()
    try:
        if args.case:
            role, _, number = args.case.partition(":")
            fuzzer = Fuzzer(args.seed)
            if role == "parser":
                parser_case(fuzzer.rng(role, int(number)), fuzzer.tally)
            else:
                asyncio.run(one_case(fuzzer, role, int(number)))
            print("holds")
            return 0
        tally = run(args.frames, args.seed, lambda line: print(line, flush=True))
    except Finding as finding:
        print(f"FOUND {finding}")
        return 1
    total = sum(tally.frames.values())
    print(
        f"{total} frames: no crash, no hang (longest case {tally.slowest_s:.2f} s), "
        f"at most {tally.peak_bytes / 2**20:.1f} MiB in {AT_ONCE} cases, pools intact; "
        f"{tally.chunks} chunks were taken and each was right"
    )
    print("transfers ended:", dict(tally.ends.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
