"""A tenant that has its share of a tier makes room for itself, and for nobody else's sake."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_sites import Site, World, filling, make_layout, make_refs, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache import ChunkRef, DiskTier, DramTier, Lru
from geokv.cache.record import checksums, make_header
from geokv.errors import CacheError, ConfigError

LAYOUT = make_layout()


async def put(site: Site, refs: list[ChunkRef]) -> None:
    for ref in refs:
        assert await site.cache.store(ref, filling(ref, LAYOUT))


def here(site: Site, refs: list[ChunkRef]) -> int:
    return sum(ref.key in site.cache.tiers for ref in refs)


async def test_a_busy_tenant_evicts_only_itself(world: World) -> None:
    site = await world.site("a", LAYOUT, chunks=10)
    site.cache.tier.limit_owners(0.5)
    quiet, busy = make_refs(LAYOUT, 4, tenant="quiet"), make_refs(LAYOUT, 40, tenant="busy")
    await put(site, quiet)
    await put(site, busy)
    assert here(site, quiet) == 4 and here(site, busy) == 5
    assert site.cache.tier.stats()["owners"] == {"quiet": 4, "busy": 5}
    # Its newest are there: it lost its oldest.
    assert here(site, busy[-5:]) == 5


async def test_without_a_quota_it_is_as_it_was(world: World) -> None:
    site = await world.site("a", LAYOUT, chunks=10)
    quiet, busy = make_refs(LAYOUT, 4, tenant="quiet"), make_refs(LAYOUT, 40, tenant="busy")
    await put(site, quiet)
    await put(site, busy)
    assert here(site, quiet) == 0 and here(site, busy) == 10


async def test_a_share_that_is_all_pinned_is_full_for_its_tenant_alone(world: World) -> None:
    site = await world.site("a", LAYOUT, chunks=4)
    tier = site.cache.tier
    tier.limit_owners(0.5)
    mine, other = make_refs(LAYOUT, 3, tenant="mine"), make_refs(LAYOUT, 1, tenant="other")
    await put(site, mine[:2])
    pins = [tier.pin(ref.key) for ref in mine[:2]]
    with pytest.raises(CacheError, match="2 slots of 'mine'"):
        tier.reserve(mine[2].key, "mine")
    await put(site, other)
    for pin in pins:
        assert pin is not None
        pin.release()
    await put(site, mine[2:])
    assert here(site, mine) == 2


async def test_what_comes_from_elsewhere_counts_for_its_tenant(
    world: World, tmp_path: Path
) -> None:
    a = await world.site("a", LAYOUT)
    disk = DiskTier(LAYOUT, 6 * LAYOUT.wire_bytes, tmp_path)
    peers = {"a": ("127.0.0.1", a.port)}
    b = await world.site(
        "b", LAYOUT, chunks=6, spare=6, disk=disk, write="write-through", peers=peers
    )
    a.cache.add_peer("b", "127.0.0.1", b.port)
    for tier in (b.cache.tier, disk):
        tier.limit_owners(0.5)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    refs = make_refs(LAYOUT, 5)
    await a.put(refs)
    for ref in refs:  # fetched
        await b.pull([ref])
        await b.cache.quiesce(soon())
    pushed = make_refs(LAYOUT, 2, seed=4)
    for ref in pushed:
        await a.cache.store(ref, filling(ref, LAYOUT))
        assert (await a.cache.push(["b"], ref, soon())) == {"b": None}
        await b.cache.quiesce(soon())
    for tier in (b.cache.tier, disk):
        assert tier.stats()["owners"] == {"acme": 3}
    b.cache.tier.drop()
    disk_keys = disk.keys()
    await b.pull([ref for ref in [*refs, *pushed] if ref.key in disk_keys][:1])  # promoted
    assert b.cache.tier.stats()["owners"] == {"acme": 1}
    await b.cache.drop("all")
    assert not disk.stats()["owners"] and not b.cache.tier.stats()["owners"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fill", "abort", "drop", "pin", "unpin"]),
        st.sampled_from(["x", "y", "z"]),
        st.integers(0, 5),
    ),
    max_size=60,
)
REFS = {name: make_refs(LAYOUT, 6, tenant=name) for name in "xyz"}


@settings(max_examples=80, deadline=None)
@given(steps=STEPS, share=st.sampled_from([0.2, 0.34, 0.5, 1.0]))
def test_no_owner_ever_has_more_than_its_share(
    steps: list[tuple[str, str, int]], share: float
) -> None:
    tier = DramTier(LAYOUT, 6 * LAYOUT.wire_bytes, Lru())
    tier.limit_owners(share)
    most = max(1, int(6 * share))
    pins = []
    for what, owner, number in steps:
        ref = REFS[owner][number]
        before = set(tier.keys())
        if what in ("fill", "abort") and ref.key not in tier:
            full = tier.stats()["owners"].get(owner, 0) >= most
            try:
                slot = tier.reserve(ref.key, owner)
            except CacheError:
                continue
            gone = before - set(tier.keys())
            if full:  # and then nobody else lost anything
                assert gone <= {one.key for one in REFS[owner]}
            if what == "abort":
                tier.abort(slot)
            else:
                filling(ref, LAYOUT)(slot.view)
                sums = checksums(LAYOUT, slot.view)
                tier.commit(slot, make_header(ref, LAYOUT, sums, slot.generation, 1))
        elif what == "drop":
            tier.drop([ref.key])
        elif what == "pin":
            entry = tier.get(ref.key)
            if entry is not None:
                pins.append(entry)
        elif pins:
            pins.pop().release()
        tier.check_integrity()
        counted = tier.stats()["owners"]
        assert all(count <= most for count in counted.values())
        held = {name: sum(ref.key in tier for ref in REFS[name]) for name in "xyz"}
        assert counted == {name: count for name, count in held.items() if count}


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="quota"):
        DramTier(LAYOUT, 6 * LAYOUT.wire_bytes, Lru()).limit_owners(share)
