"""What no honest peer sends. The same cases by the million: ``tests/fuzz/wire.py``."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cache_headers import HEADERS
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache.record import ChunkHeader, checksums, parse
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, MAX_BODY_BYTES, FrameCodec, Kind
from geokv.errors import RecordError

KEYS = (b"k" * 32, b"k" * 32)
STRUCTS = [wire.Get, wire.Miss, wire.Warm, wire.Call, wire.Reply, wire.Offer, wire.Access]


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    path = Path(__file__).parents[2] / "fuzz" / "wire.py"
    spec = importlib.util.spec_from_file_location("fuzz_wire", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_wire"] = module
    spec.loader.exec_module(module)
    return module


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(list(Kind)), body=st.binary(max_size=400), sent=st.integers(0, 5))
def test_what_is_packed_is_read_and_nothing_else(kind: Kind, body: bytes, sent: int) -> None:
    keyed = kind not in (Kind.HELLO, Kind.CHALLENGE)
    sender, receiver = (FrameCodec(KEYS if keyed else None) for _ in range(2))
    sender._sent = receiver._received = sent
    frame = sender.pack(kind, body)
    assert receiver.head(frame[:HEAD_BYTES]) == (kind, len(body))
    assert len(frame) == HEAD_BYTES + len(body) + receiver.mac_bytes
    assert receiver.opened(frame) == body
    with pytest.raises(RecordError):  # never twice
        receiver.head(frame[:HEAD_BYTES])


@settings(max_examples=250, deadline=None)
@given(head=st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES), keyed=st.booleans())
def test_random_heads_are_refused(head: bytes, keyed: bool) -> None:
    with pytest.raises(RecordError):
        FrameCodec(KEYS if keyed else None).head(head)


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=300), at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_seen_wherever_it_is(body: bytes, at: int, bit: int) -> None:
    frame = bytearray(FrameCodec(KEYS).pack(Kind.GET, body))
    frame[at % len(frame)] ^= 1 << bit
    receiver = FrameCodec(KEYS)
    with pytest.raises(RecordError):
        receiver.head(bytes(frame[:HEAD_BYTES]))
        receiver.opened(bytes(frame))


@settings(max_examples=250, deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bodies_are_a_message_or_a_record_error(data: bytes) -> None:
    for struct in STRUCTS:
        with contextlib.suppress(RecordError):
            message = wire.decode(data, struct)
            assert wire.decode(wire.encode(message), struct) == message
    with contextlib.suppress(RecordError):
        parse(data)
    with contextlib.suppress(RecordError):
        wire.split_chunk(data)


@settings(max_examples=150, deadline=None)
@given(header=HEADERS, at=st.integers(0, 10**6), bit=st.integers(0, 7), cut=st.integers(1, 200))
def test_a_record_header_comes_back_and_no_part_of_one_does(
    header: ChunkHeader, at: int, bit: int, cut: int
) -> None:
    packed = header.pack()
    assert parse(packed) == header
    with pytest.raises(RecordError):
        parse(packed[:-cut])
    with pytest.raises(RecordError):
        parse(packed + b"\0")
    flipped = bytearray(packed)
    flipped[at % len(packed)] ^= 1 << bit
    with contextlib.suppress(RecordError):
        other = parse(flipped)
        assert other != header and other.pack() == flipped


def test_no_frame_asks_for_more_than_its_limit() -> None:
    with pytest.raises(RecordError, match="more than"):
        FrameCodec(KEYS).pack(Kind.GET, bytes(MAX_BODY_BYTES + 1))
    for kind, keys, limit in (
        (Kind.HELLO, None, wire.MAX_HANDSHAKE_BYTES),
        (Kind.JOIN, KEYS, wire.MAX_HANDSHAKE_BYTES),
        (Kind.CALL, KEYS, MAX_BODY_BYTES),
    ):
        sender = FrameCodec(keys)
        head = sender.pack(kind, bytes(min(limit + 1, MAX_BODY_BYTES)))[:HEAD_BYTES]
        if limit < MAX_BODY_BYTES:
            with pytest.raises(RecordError, match=f"more than {limit}"):
                FrameCodec(keys).head(head)
        else:
            assert FrameCodec(keys).head(head) == (kind, limit)


def test_two_thousand_frames_through_the_parser(fuzz: ModuleType) -> None:
    fuzzer = fuzz.Fuzzer(seed=7)
    fuzzer.parser(2000)
    assert fuzzer.tally.frames["parser"] == 2000


@pytest.mark.parametrize("role", ["server", "client"])
async def test_hostile_peers(fuzz: ModuleType, role: str) -> None:
    fuzzer = fuzz.Fuzzer(seed=7)
    await fuzzer.sessions(role, 400)
    tally = fuzzer.tally
    assert tally.frames[role] >= 400 and tally.cases[role] >= 16
    assert role == "server" or tally.chunks > 20


async def test_the_fuzzer_notices_a_wrong_byte(fuzz: ModuleType, monkeypatch: Any) -> None:
    """A sender whose memory was overwritten before it made its checksums."""
    header, payload = fuzz.header, fuzz.payload

    def wrong_header(ref: Any) -> ChunkHeader:
        ones = b"\1" * fuzz.LAYOUT.real_bytes
        return replace(header(ref), checksums=checksums(fuzz.LAYOUT, ones))

    def wrong_payload(ref: Any) -> bytes:
        whole = bytearray(payload(ref))
        at = 0
        for real, fill in fuzz.LAYOUT.group_bytes:
            whole[at : at + real] = b"\1" * real
            at += real + fill
        return bytes(whole)

    monkeypatch.setattr(fuzz, "header", wrong_header)
    monkeypatch.setattr(fuzz, "payload", wrong_payload)
    with pytest.raises(fuzz.Finding, match="not the chunk's were taken for it"):
        await fuzz.Fuzzer(seed=7).sessions("client", 3000)


async def test_the_fuzzer_notices_a_wait_that_does_not_end(
    fuzz: ModuleType, monkeypatch: Any
) -> None:
    async def forever(*_: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(fuzz, "CASE_S", 0.2)
    monkeypatch.setattr(fuzz, "server_case", forever)
    with pytest.raises(fuzz.Finding, match="TimeoutError"):
        await fuzz.Fuzzer(seed=7).sessions("server", 10)
