"""Mixed fleets: chunks of one layout become chunks of another, byte for byte, or sites say
at once, with both values, that they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from cache_sites import TENANT, Site, World, make_layout, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache import CentralDirectory, ChunkLayout, ChunkRef, chunk_refs, root_key
from geokv.cache.convert import Converter, parts_of, refusals, whole_of
from geokv.cache.record import checksums, verify
from geokv.errors import ConfigError, FetchError, RecordError

CONVERT = {"mixed": "convert", "streams": 2, "in_flight": 2}
EXACT = [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32")]


def layout(dtype: str = "float32", chunk: int = 64, shards: int = 1, **more: Any) -> ChunkLayout:
    """4 layers x 2 x T tokens x 2 heads x 8 wide."""
    fields = {"block_tokens": 16, "wire_bytes_per_token": 1024, "key_tokens": 16, **more}
    return make_layout(dtype=dtype, chunk_tokens=chunk, shards=shards, **fields)


def refs_of(one: ChunkLayout, tokens: Sequence[int], tenant: str = TENANT) -> list[ChunkRef]:
    root = root_key(one.model_fingerprint, tenant.encode())
    return chunk_refs(root, tokens, one.chunk_tokens, one.key_tokens, tenant)


def numbers(tokens: int, seed: int = 1) -> torch.Tensor:
    """KV ``[L, 2, tokens, Hkv, D]`` as float32, with awkward values among it."""
    made = torch.randn(4, 2, tokens, 2, 8, generator=torch.Generator().manual_seed(seed))
    flat = made.view(-1)
    flat[:6] = torch.tensor([0.0, -0.0, 6e-8, -65504.0, 1.00390625, 3.0517578e-05])
    return made


def payload(kv: torch.Tensor, one: ChunkLayout) -> bytes:
    """``kv`` of one chunk as that layout has it, made by torch alone."""
    heads = one.kv_heads // one.shards
    split = kv.to(getattr(torch, one.dtype)).view(
        one.layers, 2, one.chunk_tokens, one.shards, heads, one.head_dim
    )
    flat = split.permute(0, 3, 1, 2, 4, 5).contiguous().view(-1)
    return bytes(flat.view(torch.uint8).numpy().data)


def pieces(kv: torch.Tensor, one: ChunkLayout) -> list[bytes]:
    return [payload(part, one) for part in kv.split(one.chunk_tokens, dim=2)]


def stored(kv: torch.Tensor, old: str) -> torch.Tensor:
    """What is left of ``kv`` once a site has kept it as ``old``."""
    return kv.to(getattr(torch, old)).float()


@settings(max_examples=60, deadline=None)
@given(
    dtypes=st.tuples(*[st.sampled_from(["float32", "float16", "bfloat16"])] * 2),
    shards=st.tuples(*[st.sampled_from([1, 2])] * 2),
    chunks=st.tuples(*[st.sampled_from([32, 64, 128])] * 2),
    groups=st.tuples(*[st.integers(1, 4)] * 2),
    seed=st.integers(0, 1000),
)
def test_every_conversion_is_torchs_byte_for_byte(
    dtypes: tuple[str, str],
    shards: tuple[int, int],
    chunks: tuple[int, int],
    groups: tuple[int, int],
    seed: int,
) -> None:
    theirs = layout(dtypes[0], chunks[0], shards[0], groups=groups[0])
    mine = layout(dtypes[1], chunks[1], shards[1], groups=groups[1])
    converter = Converter(mine, theirs)
    kv = stored(numbers(128, seed), theirs.dtype)
    sources, wanted = pieces(kv, theirs), pieces(kv, mine)
    step = min(chunks)
    made = [bytearray(mine.real_bytes) for _ in wanted]
    same = True
    for at in range(0, 128, step):
        source, target = memoryview(sources[at // chunks[0]]), memoryview(made[at // chunks[1]])
        same &= converter.convert(source, at % chunks[0], target, at % chunks[1], step)
    assert [bytes(one) for one in made] == wanted
    assert same == bool(torch.equal(stored(kv, mine.dtype), kv))
    assert same or not converter.exact


@pytest.mark.parametrize("pair", EXACT)
def test_widening_loses_nothing_and_comes_back(pair: tuple[str, str]) -> None:
    small, wide = (layout(dtype) for dtype in pair)
    kv = stored(numbers(64), small.dtype)
    source = payload(kv, small)
    there, back = bytearray(wide.real_bytes), bytearray(small.real_bytes)
    assert Converter(wide, small).exact
    assert Converter(wide, small).convert(memoryview(source), 0, memoryview(there), 0, 64)
    assert Converter(small, wide).convert(memoryview(there), 0, memoryview(back), 0, 64)
    assert bytes(back) == source


def test_a_conversion_that_should_lose_nothing_is_looked_at(monkeypatch: Any) -> None:
    from geokv.cache import convert

    def one_wrong(values: Any, old: str, new: str) -> Any:
        made = values.astype(new)
        if new == "float32":
            made.flat[3] += 1
        return made

    monkeypatch.setattr(convert, "_cast", one_wrong)
    mine, theirs = layout("float32"), layout("float16")
    source = payload(numbers(64).clamp(-1, 1), theirs)
    with pytest.raises(RecordError, match="float16 did not survive as float32"):
        Converter(mine, theirs).convert(
            memoryview(source), 0, memoryview(bytearray(mine.real_bytes)), 0, 64
        )


def test_what_cannot_be_converted_is_refused_naming_both_values() -> None:
    mine = layout()
    for change, line in [
        ({"model_fingerprint": "other"}, "model_fingerprint: 'tiny' here, 'other' there"),
        ({"layers": 8}, "layers: 4 here, 8 there"),
        ({"kv_heads": 4}, "kv_heads: 2 here, 4 there"),
        ({"head_dim": 16}, "head_dim: 8 here, 16 there"),
        ({"key_tokens": 8}, "key_tokens: 16 here, 8 there"),
        ({"chunk": 96}, "chunk_tokens: 64 here, 96 there"),
        ({"chunk": 64 * 65}, "chunk_tokens: 64 here, 4160 there"),
        ({"dtype": "int8"}, "dtype: 'float32' here, 'int8' there"),
        ({"wire_bytes_per_token": 2**20}, "wire_bytes_per_token: 1024 here, 1048576 there"),
    ]:
        theirs = (
            layout(**change)
            if "wire_bytes_per_token" in change
            else layout(
                **{"wire_bytes_per_token": 1024 * (change.get("layers", 4) // 4) * 2, **change}
            )
        )
        assert refusals(mine, theirs) == [line]
        assert len(refusals(theirs, mine)) == 1
        with pytest.raises(ConfigError, match=line.split(":")[0]):
            Converter(mine, theirs)
    fine = layout("bfloat16", 256, 2, block_tokens=32, groups=3, wire_bytes_per_token=777)
    assert refusals(mine, fine) == refusals(fine, mine) == []


def test_blocks_of_32_share_keys_with_blocks_of_16_if_the_chain_does() -> None:
    tokens = list(range(128))
    small = layout(block_tokens=16, key_tokens=0)
    own_chain = layout(block_tokens=32, key_tokens=0)
    same_chain = layout(block_tokens=32, key_tokens=16)
    assert (small.key_tokens, own_chain.key_tokens) == (16, 32)
    keys = [ref.key for ref in refs_of(small, tokens)]
    assert [ref.key for ref in refs_of(same_chain, tokens)] == keys
    assert not {ref.key for ref in refs_of(own_chain, tokens)} & set(keys)
    assert refusals(small, same_chain) == []
    assert refusals(small, own_chain) == ["key_tokens: 16 here, 32 there"]
    with pytest.raises(ConfigError, match=r"block_tokens: must be a multiple of key_tokens \(32\)"):
        layout(block_tokens=16, key_tokens=32)
    with pytest.raises(ConfigError, match=r"kv_heads: must be a multiple of shards \(3\)"):
        layout(shards=3)


def test_parts_and_wholes_have_the_keys_of_the_sites_that_keep_them() -> None:
    tokens = list(range(256))
    small, large = layout(chunk=64), layout(chunk=256)
    (whole,) = refs_of(large, tokens)
    parts = refs_of(small, tokens)
    assert parts_of(whole, small) == parts
    assert whole_of(parts) == whole
    other = replace(whole, tokens=tuple(reversed(whole.tokens)))
    with pytest.raises(FetchError, match="no chain of 16"):
        parts_of(other, small)


# -- two sites ----------------------------------------------------------------


async def put(site: Site, tokens: Sequence[int], kv: torch.Tensor) -> list[ChunkRef]:
    """Store ``kv`` as the site's own chunks."""
    refs = refs_of(site.cache.layout, tokens)
    for ref, data in zip(refs, pieces(kv, site.cache.layout), strict=True):

        def fill(view: memoryview, data: bytes = data) -> None:
            view[:] = data

        assert await site.cache.store(ref, fill, publish=False)
    assert await site.cache.publish([ref.key for ref in refs])
    return refs


async def join(
    world: World, first: ChunkLayout, second: ChunkLayout, **more: Any
) -> tuple[Site, Site]:
    """Site a with ``first`` and the directory, and site b with ``second``."""
    a = await world.site("a", first, transport=CONVERT, **more)
    peers = {"a": ("127.0.0.1", a.port)}
    b = await world.site("b", second, transport=CONVERT, peers=peers, **more)
    a.cache.add_peer("b", "127.0.0.1", b.port)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    return a, b


PAIRS = {
    "fp16 to fp32": (layout("float16"), layout("float32")),
    "bf16 to fp32, 2 shards to 1": (layout("bfloat16", shards=2), layout("float32")),
    "1 shard to 2": (layout(), layout(shards=2)),
    "blocks of 16 to blocks of 32": (layout(), layout(block_tokens=32)),
    "chunks of 64 to 256": (layout(chunk=64), layout(chunk=256)),
    "chunks of 256 to 64": (layout(chunk=256), layout(chunk=64)),
    "groups and filler": (layout(groups=1), layout(groups=4, wire_bytes_per_token=3000)),
    "all at once": (
        layout("float16", 64, 2, groups=3, wire_bytes_per_token=600),
        layout("float32", 256, 1, block_tokens=32, groups=4),
    ),
    "all at once, the other way": (
        layout("bfloat16", 256, 1, block_tokens=32, groups=3, wire_bytes_per_token=600),
        layout("float32", 64, 2, groups=1),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
async def test_a_fetch_across_layouts_is_byte_for_byte(world: World, pair: str) -> None:
    theirs, mine = PAIRS[pair]
    a, b = await join(world, theirs, mine)
    tokens = list(range(512))
    kv = stored(numbers(512), theirs.dtype)
    await put(a, tokens, kv)
    refs = refs_of(mine, tokens)
    outcome, got = await b.pull(refs)
    assert got == pieces(kv, mine)
    assert outcome.usable_chunks == len(refs) and not outcome.misses
    larger = max(1, theirs.chunk_tokens // mine.chunk_tokens)
    assert outcome.remote_chunks == len(refs) // larger
    assert outcome.merged_chunks == len(refs) - len(refs) // larger
    assert outcome.wire_bytes == 512 * theirs.wire_bytes_per_token
    for ref in refs:
        with b.cache.tier.get(ref.key) as entry:  # type: ignore[union-attr]
            assert not entry.header.lossy
            assert verify(entry.header, ref, mine) is None
            assert entry.header.checksums == checksums(mine, entry.view)
    assert len(b.ops("convert")) == len(refs)
    assert len(b.ops("fetch")) == 512 // theirs.chunk_tokens == len(a.ops("serve"))
    again, got = await b.pull(refs)
    assert again.local_chunks == len(refs) and got == pieces(kv, mine)
    # What came is b's own now, and others can have it.
    await b.cache.quiesce(soon())
    c = await world.site(
        "c",
        theirs,
        transport=CONVERT,
        exact=False,
        peers={"a": ("127.0.0.1", a.port), "b": ("127.0.0.1", b.port)},
    )
    await c.cache.connect(soon())
    await a.cache.drop()
    outcome, got = await c.pull(refs_of(theirs, tokens))
    assert got == pieces(kv, theirs), outcome
    assert outcome.sites == {"b": outcome.remote_chunks}


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
async def test_what_loses_something_is_a_miss_or_marked(world: World, narrow: str) -> None:
    theirs, mine = layout("float32"), layout(narrow)
    a, b = await join(world, theirs, mine)
    tokens = list(range(128))
    kv = numbers(128)
    await put(a, tokens, kv)
    refs = refs_of(mine, tokens)
    outcome, got = await b.pull(refs)
    assert not got and outcome.misses == {"lossy": 1}
    assert f"float32 of a cannot be {narrow} here without loss" in outcome.reason
    assert not a.ops("serve")  # not a byte of it was asked for
    c = await world.site(
        "c", mine, transport=CONVERT, exact=False, peers={"a": ("127.0.0.1", a.port)}
    )
    await c.cache.connect(soon())
    outcome, got = await c.pull(refs)
    assert got == pieces(kv, mine) and not outcome.misses
    for ref in refs:
        with c.cache.tier.get(ref.key) as entry:  # type: ignore[union-attr]
            assert entry.header.lossy
            assert verify(entry.header, ref, mine) == "lossy"
            assert verify(entry.header, ref, mine, exact=False) is None
    assert [event["lossy"] for event in c.ops("convert")] == [True, True]
    # The mark goes with it: b, which wants exact KV, does not take it from c either.
    await c.cache.quiesce(soon())
    b.cache.add_peer("c", "127.0.0.1", c.port)
    await b.cache.transport.connect("c", soon())
    await a.cache.drop()
    outcome, got = await b.pull(refs)
    assert not got and outcome.misses == {"lossy": 1}
    d = await world.site(
        "d",
        mine,
        transport=CONVERT,
        exact=False,
        peers={"a": ("127.0.0.1", a.port), "c": ("127.0.0.1", c.port)},
    )
    await d.cache.connect(soon())
    outcome, got = await d.pull(refs)
    assert got == pieces(kv, mine) and outcome.sites == {"c": 2}
    with d.cache.tier.get(refs[0].key) as entry:  # type: ignore[union-attr]
        assert entry.header.lossy


async def test_narrowing_numbers_that_fit_is_not_marked(world: World) -> None:
    theirs, mine = layout("float32"), layout("bfloat16")
    a, b = await join(world, theirs, mine, exact=False)
    kv = stored(numbers(64), "bfloat16")
    await put(a, range(64), kv)
    _, got = await b.pull(refs_of(mine, range(64)))
    assert got == pieces(kv, mine)
    assert [event["lossy"] for event in b.ops("convert")] == [False]


async def test_a_part_that_is_missing_or_damaged_is_a_miss_of_the_whole(world: World) -> None:
    theirs, mine = layout(chunk=64), layout(chunk=256)
    a, b, proxy = await world.behind_proxy(mine, a={"layout": theirs}, transport=CONVERT)
    tokens = list(range(512))
    kv = numbers(512)
    parts = await put(a, tokens, kv)
    refs = refs_of(mine, tokens)
    proxy.arm("flip", 30_000)
    outcome, got = await b.pull(refs)
    assert proxy.fired == 1 and not got
    assert outcome.misses == {"corrupt": 1}
    proxy.disarm()
    await b.cache.quiesce(soon())
    assert b.cache.tier.stats()["reserved"] == 0
    await b.cache.drop()
    a.cache.tier.drop([parts[5].key])
    outcome, got = await b.pull(refs)
    assert got == pieces(kv, mine)[:1] and outcome.misses == {"absent": 1}
    await proxy.close()


async def test_a_larger_chunk_that_begins_before_what_is_asked_cannot_be_named(
    world: World,
) -> None:
    theirs, mine = layout(chunk=256), layout(chunk=64)
    a, b = await join(world, theirs, mine)
    tokens = list(range(512))
    kv = numbers(512)
    await put(a, tokens, kv)
    refs = refs_of(mine, tokens)
    outcome, got = await b.pull(refs[2:])  # the device has the first two
    assert not got and outcome.usable_chunks == 0
    assert b.cache.misses == {"absent": 1}
    outcome, got = await b.pull(refs[4:])
    assert got == pieces(kv, mine)[4:]


async def test_little_room_takes_the_part_that_is_wanted(world: World) -> None:
    theirs, mine = layout(chunk=256), layout(chunk=64)
    a = await world.site("a", theirs, transport=CONVERT)
    peers = {"a": ("127.0.0.1", a.port)}
    b = await world.site("b", mine, chunks=2, transport=CONVERT, peers=peers)
    await b.cache.connect(soon())
    kv = numbers(256)
    await put(a, range(256), kv)
    _, got = await b.pull(refs_of(mine, range(256)))
    assert got == pieces(kv, mine)[: len(got)] and 1 <= len(got) <= 4
    await b.cache.quiesce(soon())


async def test_layouts_are_refused_unless_conversion_is_asked_for(world: World) -> None:
    a = await world.site("a", layout("float16"), transport=CONVERT)
    b = await world.site("b", layout("float32"), peers={"a": ("127.0.0.1", a.port)})
    with pytest.raises(FetchError, match="dtype: 'float32' here, 'float16' there") as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "mismatch"


async def test_conversion_that_cannot_be_is_refused_at_join(world: World) -> None:
    a = await world.site("a", layout(key_tokens=0), transport=CONVERT)
    b = await world.site(
        "b",
        layout(block_tokens=32, key_tokens=0, dtype="float16"),
        peers={"a": ("127.0.0.1", a.port)},
        transport=CONVERT,
    )
    with pytest.raises(FetchError) as caught:
        await b.cache.connect(soon())
    assert caught.value.cause == "mismatch"
    assert "key_tokens: 16 here, 32 there" in caught.value.message  # as a says it
    assert "dtype" not in caught.value.message


async def test_a_site_that_comes_back_with_another_layout(world: World) -> None:
    mine = layout("float32")
    b = await world.site("b", mine, directory=CentralDirectory("b"), transport=CONVERT)
    tokens = list(range(128))
    kv = stored(numbers(128), "bfloat16")
    port = 0
    for dtype in ("float32", "bfloat16", "float16", "float32"):
        a = await world.site(
            "a",
            layout(dtype),
            port=port,
            directory=CentralDirectory("b"),
            transport=CONVERT,
            peers={"b": ("127.0.0.1", b.port)},
        )
        if not port:
            b.cache.add_peer("a", "127.0.0.1", a.port)
        port = a.port
        await a.cache.connect(soon())
        await put(a, tokens, kv)
        refs = refs_of(mine, tokens)
        outcome, got = await b.pull(refs)
        if outcome.misses:  # learnt from the first answer of the new life
            assert not got and set(outcome.misses) <= {"mismatch", "unreachable"}
            await b.cache.quiesce(soon())
            outcome, got = await b.pull(refs)
        assert got == pieces(stored(kv, dtype), mine), (dtype, outcome)
        await b.cache.drop()
        await a.cache.close()
        world.sites.remove(a)
