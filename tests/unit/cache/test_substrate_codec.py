"""Codecs: what they give back, what crosses the wire, and who may use what is lossy."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from cache_sites import Site, World, make_layout, make_refs, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache import ChunkHeader, ChunkLayout, ChunkRef
from geokv.cache.codec import CODECS, Shape, check_codec
from geokv.cache.filler import group_filler
from geokv.cache.record import checksums, make_header
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.coded import CodedPayload, code
from geokv.cache.substrate.tcp.get_request import GetRequest
from geokv.cache.substrate.transport import Transfer
from geokv.errors import ConfigError, FetchError, RecordError

LAYOUT = make_layout(dtype="bfloat16", wire_bytes_per_token=2048)
SHAPES = [Shape("float32", 8), Shape("float16", 8), Shape("bfloat16", 8)]


def kv(layout: ChunkLayout, seed: int = 0) -> bytes:
    """Values as KV has them: normal, with a few channels ten times as large."""
    rng = np.random.default_rng(seed)
    count = layout.real_bytes_per_token * layout.chunk_tokens
    dtype = getattr(torch, layout.dtype)
    count //= torch.empty(0, dtype=dtype).element_size()
    values = rng.standard_normal(count).astype(np.float32)
    values[::8] *= 10
    return torch.from_numpy(values).to(dtype).view(torch.uint8).numpy().tobytes()


def floats(raw: bytes, dtype: str) -> torch.Tensor:
    tensor = torch.from_numpy(np.frombuffer(raw, np.uint8).copy())
    return tensor.view(getattr(torch, dtype)).to(torch.float32)


def there_and_back(name: str, raw: bytes, shape: Shape) -> tuple[int, bytes]:
    codec = CODECS[name]
    coded = codec.encode(memoryview(raw), shape)
    assert coded is not None
    into = bytearray(b"\xaa" * len(raw))
    codec.decode(memoryview(coded), shape, memoryview(into))
    return len(coded), bytes(into)


@pytest.mark.parametrize("shape", SHAPES)
def test_zstd_gives_back_every_byte(shape: Shape) -> None:
    raw = kv(make_layout(dtype=shape.dtype))
    size, back = there_and_back("zstd", raw, shape)
    assert back == raw and size < len(raw)


@given(st.binary(min_size=1, max_size=300), st.sampled_from([*SHAPES, Shape("int8", 8)]))
@settings(max_examples=60, deadline=None)
def test_zstd_gives_back_any_bytes(raw: bytes, shape: Shape) -> None:
    raw = raw * 8
    assert there_and_back("zstd", raw, shape)[1] == raw


@pytest.mark.parametrize("shape", SHAPES)
def test_lossy_codecs_are_as_close_as_their_steps(shape: Shape) -> None:
    raw = kv(make_layout(dtype=shape.dtype))
    before = floats(raw, shape.dtype)
    size, back = there_and_back("int8", raw, shape)
    after = floats(back, shape.dtype)
    vectors = before.reshape(-1, shape.width)
    step = vectors.abs().amax(1, keepdim=True) / 127
    error = (after.reshape(-1, shape.width) - vectors).abs()
    # Half a step, and what the element type itself rounds.
    assert bool((error <= step * 0.5 + vectors.abs() * 2**-8 + step * 127 * 2**-8).all())
    assert size == len(before) + 4 * len(vectors)
    size, back = there_and_back("fp8", raw, shape)
    after = floats(back, shape.dtype)
    # e4m3 has three bits after the point: half a unit is 1/16, and 2**-10 near zero.
    assert bool(((after - before).abs() <= before.abs() / 16 + 2**-10).all())
    assert size == len(before)


def test_fp8_saturates_and_int8_keeps_zero() -> None:
    shape = Shape("float32", 4)
    raw = np.array([1e6, -1e6, 448, 0, 0, 0, 0, 0], np.float32).tobytes()
    _, back = there_and_back("fp8", raw, shape)
    assert floats(back, "float32").tolist() == [448, -448, 448, 0, 0, 0, 0, 0]
    _, back = there_and_back("int8", raw, shape)
    assert floats(back, "float32").tolist()[4:] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["fp8", "int8"])
def test_what_is_not_finite_or_no_float_is_left_alone(name: str) -> None:
    bad = np.array([1, np.nan, 2, 3], np.float32).tobytes()
    assert CODECS[name].encode(memoryview(bad), Shape("float32", 4)) is None
    assert CODECS[name].encode(memoryview(bytes(8)), Shape("int8", 4)) is None


@pytest.mark.parametrize("name", list(CODECS))
def test_no_decoder_writes_or_takes_more_than_its_group(name: str) -> None:
    shape = Shape("float32", 8)
    raw = kv(make_layout())
    coded = CODECS[name].encode(memoryview(raw), shape)
    assert coded is not None
    for wrong in (coded[:-1], coded + b"\0" * 8, b"", bytes(len(coded))):
        with pytest.raises(RecordError):
            CODECS[name].decode(memoryview(wrong), shape, memoryview(bytearray(len(raw) - 32)))


def test_names() -> None:
    assert check_codec("none") == "none" and set(CODECS) == {"zstd", "fp8", "int8"}
    with pytest.raises(ConfigError, match=r"substrate\.codec: unknown codec 'lz4'"):
        check_codec("lz4")


# -- over the wire -----------------------------------------------------------------


async def put(site: Site, refs: list[ChunkRef]) -> dict[bytes, bytes]:
    stored = {}
    for number, ref in enumerate(refs):
        raw = stored[ref.key] = kv(LAYOUT, number)
        assert await site.cache.store(ref, lambda view, raw=raw: copy(view, raw), publish=False)
    assert await site.cache.publish([ref.key for ref in refs])
    return stored


def copy(view: memoryview, raw: bytes) -> None:
    view[:] = raw


async def pair(world: World, codec: str, exact: bool) -> tuple[Site, Site]:
    a = await world.site("a", LAYOUT, exact=exact)
    b = await world.site(
        "b",
        LAYOUT,
        peers={"a": ("127.0.0.1", a.port)},
        transport={"codec": codec},
        exact=exact,
    )
    await b.cache.connect(soon())
    return a, b


async def test_zstd_shrinks_the_wire_by_its_ratio_and_no_byte_differs(world: World) -> None:
    a, b = await pair(world, "zstd", True)
    refs = make_refs(LAYOUT, 4)
    stored = await put(a, refs)
    outcome, got = await b.pull(refs)
    assert got == [stored[ref.key] for ref in refs]
    shape = Shape.of(LAYOUT)
    want = 0
    for ref in refs:
        for place, (real, fill) in zip(LAYOUT.group_slices, LAYOUT.group_bytes, strict=True):
            coded = CODECS["zstd"].encode(memoryview(stored[ref.key])[place], shape)
            assert coded is not None
            want += len(coded) + fill * len(coded) // real
    assert outcome.wire_bytes == want < 0.9 * 4 * LAYOUT.wire_bytes
    entry = b.cache.tier.get(refs[0].key)
    assert entry is not None and not entry.header.lossy
    entry.release()
    b.cache.check_integrity(deep=True)


@pytest.mark.parametrize("codec", ["fp8", "int8"])
async def test_lossy_chunks_are_marked_and_serve_nobody_who_wants_exact(
    world: World, codec: str
) -> None:
    a, b = await pair(world, codec, exact=False)
    refs = make_refs(LAYOUT, 3)
    stored = await put(a, refs)
    outcome, got = await b.pull(refs)
    assert outcome.remote_chunks == 3
    assert outcome.wire_bytes < 0.8 * 3 * LAYOUT.wire_bytes
    for ref, raw in zip(refs, got, strict=True):
        assert raw != stored[ref.key]
        close = floats(raw, "bfloat16") - floats(stored[ref.key], "bfloat16")
        assert float(close.abs().max()) < 3
    b.cache.check_integrity(deep=True)  # its own checksums, of what it has
    await b.cache.quiesce(soon())
    # A third site that wants exact KV gets none of it from b, and all from a.
    c = await world.site("c", LAYOUT, peers={"b": ("127.0.0.1", b.port)})
    await c.cache.transport.connect("b", soon())
    into = memoryview(bytearray(LAYOUT.real_bytes))
    with pytest.raises(FetchError) as caught:
        await c.cache.transport.submit("b", refs[0], into, soon()).done
    assert caught.value.cause == "lossy"
    assert b.cache.stats()["served"] == {"lossy": 1}  # refused there, not only here
    await c.cache.transport.submit("b", refs[0], into, soon(), exact=False).done
    assert bytes(into) == got[0]


async def test_exact_askers_get_lossy_codecs_never(world: World) -> None:
    a, b = await pair(world, "int8", exact=True)
    refs = make_refs(LAYOUT, 2)
    stored = await put(a, refs)
    outcome, got = await b.pull(refs)
    assert got == [stored[ref.key] for ref in refs]
    assert outcome.wire_bytes == 2 * LAYOUT.wire_bytes


async def test_what_does_not_get_shorter_goes_as_it_is(world: World) -> None:
    a, b = await pair(world, "zstd", True)
    ref = make_refs(LAYOUT, 1)[0]
    noise = random.Random(1).randbytes(LAYOUT.real_bytes)
    assert await a.cache.store(ref, lambda view: copy(view, noise))
    outcome, got = await b.pull([ref])
    assert got == [noise] and outcome.wire_bytes == LAYOUT.wire_bytes


async def test_groups_come_coded_too(world: World) -> None:
    a, b = await pair(world, "int8", exact=False)
    refs = make_refs(LAYOUT, 3)
    stored = await put(a, refs)
    seen: dict[tuple[int, int], bytes] = {}

    async def on_piece(chunk: int, group: int, view: memoryview) -> None:
        seen[chunk, group] = bytes(view)

    async def on_group(group: int, chunks: int) -> None:
        assert chunks == 3

    plan = await b.cache.lookup(refs, soon())
    outcome = await b.cache.fetch_layered(plan, soon(), on_piece, on_group)
    assert outcome.remote_chunks == 3 and outcome.wire_bytes < 0.8 * 3 * LAYOUT.wire_bytes
    for i, ref in enumerate(refs):
        back = b"".join(seen[i, group] for group in range(LAYOUT.groups))
        assert back != stored[ref.key]
        entry = b.cache.tier.get(ref.key)
        assert entry is not None and entry.header.lossy and bytes(entry.view) == back
        entry.release()
    b.cache.check_integrity(deep=True)


def said(**changes: Any) -> tuple[wire.Coded, list[memoryview]]:
    raw = memoryview(kv(LAYOUT))
    pieces: list[memoryview] = []
    for place, fill in zip(LAYOUT.group_slices, group_filler(LAYOUT), strict=True):
        pieces += [raw[place], fill]
    coded = code(pieces, LAYOUT, CODECS["int8"])
    assert coded is not None
    message = wire.Coded(1, "int8", b"", coded[0])
    return msgspec.structs.replace(message, **changes), coded[1]


def test_a_coded_payload_that_cannot_be_is_refused_before_it_is_received() -> None:
    into = memoryview(bytearray(LAYOUT.real_bytes))
    whole = range(LAYOUT.groups)
    message, _ = said()
    CodedPayload(message, LAYOUT, whole, into, exact=False)
    with pytest.raises(FetchError) as caught:
        CodedPayload(message, LAYOUT, whole, into, exact=True)
    assert caught.value.cause == "lossy"
    group = message.groups[0]
    for bad in (
        message.groups[:1],
        (msgspec.structs.replace(group, coded_bytes=2**40), group),
        (msgspec.structs.replace(group, coded_bytes=0), group),
        (msgspec.structs.replace(group, filler_bytes=2**40), group),
        (msgspec.structs.replace(group, filler_bytes=-1), group),
    ):
        with pytest.raises(FetchError) as caught:
            CodedPayload(said(groups=bad)[0], LAYOUT, whole, into, exact=False)
        assert caught.value.cause == "corrupt"
    with pytest.raises(FetchError) as caught:
        CodedPayload(said(codec="lz4")[0], LAYOUT, whole, into, exact=False)
    assert caught.value.cause == "mismatch"


async def test_an_answer_coded_as_nobody_asked_is_none() -> None:
    """And what had lost something before it was coded without loss is marked still."""
    (ref,) = make_refs(LAYOUT, 1)
    raw = memoryview(kv(LAYOUT))
    plain = make_header(ref, LAYOUT, checksums(LAYOUT, raw), 1, 1).stamped(1, 1, 10**10)
    for lossy, asked in ((False, "none"), (False, "int8"), (False, "zstd"), (True, "zstd")):
        header = replace(plain, lossy=lossy)
        pieces = [
            view
            for place, fill in zip(LAYOUT.group_slices, group_filler(LAYOUT), strict=True)
            for view in (raw[place], fill)
        ]
        coded = code(pieces, LAYOUT, CODECS["zstd"])
        assert coded is not None
        message = wire.Coded(1, "zstd", header.pack(), coded[0])
        into = memoryview(bytearray(LAYOUT.real_bytes))
        done: asyncio.Future[ChunkHeader] = asyncio.get_running_loop().create_future()
        transfer = Transfer(ref, into, LAYOUT, soon(), done, exact=False)
        request = GetRequest(transfer, LAYOUT, "a", 1, asked)
        if asked != "zstd":
            with pytest.raises(RecordError, match="a CODED frame is no answer"):
                request.take(wire.Kind.CODED, message)
            continue
        segments = request.take(wire.Kind.CODED, message)
        assert segments is not None
        for segment, piece in zip(segments, coded[1], strict=True):
            if segment.into is not None:
                segment.into[:] = piece
            assert segment.on_bytes is not None
            segment.on_bytes(piece)
        request.whole()
        assert request.outcome == header and bytes(into) == bytes(raw)
