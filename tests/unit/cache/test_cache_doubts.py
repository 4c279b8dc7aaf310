"""A damaged chunk: its sender looks at its own, and lets it go only if that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_sites import Site, World, make_layout, make_refs, soon

from geokv.cache.keys import ChunkRef
from geokv.cache.locality import DiskTier
from geokv.errors import FetchError
from geokv.site.meddling.chunks import ChunkDamage

LAYOUT = make_layout()


async def two(world: World) -> tuple[Site, Site, list[ChunkRef]]:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    return a, b, refs


async def pull(b: Site, refs: list[ChunkRef], layered: bool) -> tuple[int, dict[str, int]]:
    deadline = soon()
    plan = await b.cache.lookup(refs, deadline)

    async def nothing(*_: object) -> None:
        return None

    if layered:
        outcome = await b.cache.fetch_layered(plan, deadline, nothing, nothing)
    else:
        outcome = await b.cache.fetch(plan, deadline, nothing)
    return outcome.usable_chunks, dict(outcome.misses)


@pytest.mark.parametrize("layered", [False, True])
async def test_what_rotted_at_its_sender_goes_there(world: World, layered: bool) -> None:
    a, b, refs = await two(world)
    a.cache.tier.exposed(refs[1].key)[5] ^= 4
    assert await pull(b, refs, layered) == (1, {"corrupt": 1})
    await b.cache.quiesce(soon())
    await a.cache.quiesce(soon())
    assert [key.key in a.cache.tiers for key in refs] == [True, False, True]
    assert [(e["key"], e["cause"]) for e in a.ops("drop")] == [(refs[1].key.hex(), "corrupt")]
    a.cache.check_integrity(deep=True)
    assert a.cache.stats()["doubts"] == {"rotten": 1}
    # and the directory names it no more, but b too for all that b has, used or not
    found = await b.cache.directory.locate([ref.key for ref in refs], soon())
    later = ("a",) if layered else ("a", "b")
    assert [tuple(sorted(sites)) for sites in found] == [("a", "b"), (), later]
    assert [ref.key in b.cache.tiers for ref in refs] == [True, False, not layered]


async def test_what_rotted_on_its_senders_disk_goes_too(world: World, tmp_path: Path) -> None:
    disk = DiskTier(LAYOUT, 64 * LAYOUT.wire_bytes, tmp_path)
    a = await world.site("a", LAYOUT, disk=disk, chunks=4, spare=4, write="write-through")
    b = await world.site("b", LAYOUT, peers={"a": ("127.0.0.1", a.port)})
    a.cache.add_peer("b", "127.0.0.1", b.port)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    await a.cache.quiesce(soon())
    await a.cache.drop("dram")
    (path,) = tmp_path.rglob(refs[1].key.hex() + ".kv")
    rotten = bytearray(path.read_bytes())
    rotten[-100] ^= 4
    path.write_bytes(rotten)
    # It is looked at when it comes up, so that it is never sent.
    assert await pull(b, refs, layered=False) == (1, {"absent": 1})
    for site in (b, a):
        await site.cache.quiesce(soon())
    assert not path.exists() and refs[1].key not in a.cache.tiers
    a.cache.check_integrity(deep=True)
    assert (await b.cache.directory.locate([refs[1].key], soon()))[0] == ()


async def test_what_was_damaged_on_its_way_stays(world: World) -> None:
    a, b, refs = await two(world)
    damage = ChunkDamage(a.cache.source, seed=1)
    damage.set("noise", ["b"], one_in=2)
    assert await pull(b, refs, layered=False) == (1, {"corrupt": 1})
    await b.cache.quiesce(soon())
    assert len(a.cache.tier) == 3 and a.cache.stats()["doubts"] == {"sound": 1}
    assert b.cache.stats()["doubts"] == {"told": 1}
    damage.set("noise", [], 1)
    assert await pull(b, refs, layered=False) == (3, {})


async def test_a_doubt_must_name_a_key(world: World) -> None:
    a, b, refs = await two(world)
    with pytest.raises(FetchError, match="3 bytes"):
        await b.cache.transport.call("a", "chunk.doubt", b"key", soon())
    await a.cache.drop("dram")
    await b.cache.transport.call("a", "chunk.doubt", refs[0].key, soon())
    assert a.cache.stats()["doubts"] == {"gone": 1}
