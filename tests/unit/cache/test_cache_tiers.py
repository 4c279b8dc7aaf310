"""DRAM over disk in a site: down behind everybody's back, up before it is needed."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cache_sites import Site, World, content, filling, make_layout, make_refs, soon

from geokv.cache import ChunkLayout, ChunkRef, DramTier, Entry
from geokv.cache.locality import DiskCost, DiskTier, disk_file
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError

LAYOUT = make_layout()
FAST = DiskCost(1e12, 1e12, 0.0, 0.0)


def make_disk(
    folder: Path, layout: ChunkLayout = LAYOUT, chunks: int = 64, **more: Any
) -> DiskTier:
    return DiskTier(layout, chunks * layout.wire_bytes, folder, **more)


async def make_site(
    world: World, folder: Path, *, name: str = "a", disk: dict[str, Any] | None = None, **more: Any
) -> Site:
    settings = {"chunks": 4, "spare": 4, **more}
    return await world.site(name, LAYOUT, disk=make_disk(folder, **(disk or {})), **settings)


async def pair(world: World, folder: Path, **more: Any) -> tuple[Site, Site]:
    """Site a with the directory and a disk, and b without one, connected."""
    a = await make_site(world, folder, **more)
    b = await world.site("b", LAYOUT, peers={"a": ("127.0.0.1", a.port)})
    a.cache.add_peer("b", "127.0.0.1", b.port)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    return a, b


async def store(site: Site, refs: list[ChunkRef]) -> None:
    """Store one prefix and wait until everything has settled."""
    for ref in refs:
        assert await site.cache.store(ref, filling(ref, LAYOUT), publish=False)
        await asyncio.sleep(0)
    await site.cache.publish([ref.key for ref in refs])
    await site.cache.quiesce(soon())


def disk_of(site: Site) -> DiskTier:
    assert site.cache.tiers.disk is not None
    return site.cache.tiers.disk


def demotions(site: Site) -> dict[str, int]:
    return dict(site.cache.stats()["disk"]["demotions"])


def bytes_of(refs: list[ChunkRef]) -> list[bytes]:
    return [content(ref, LAYOUT) for ref in refs]


async def test_what_dram_gives_up_goes_down_and_comes_up_again(
    world: World, tmp_path: Path
) -> None:
    a = await make_site(world, tmp_path)
    refs = make_refs(LAYOUT, 10)
    await store(a, refs[:5])
    await store(a, refs[5:])
    assert len(a.cache.tier) == 4 and len(disk_of(a)) == 6
    outcome, got = await a.pull(refs[:6])
    assert got == bytes_of(refs[:6]) and not outcome.misses
    assert (outcome.local_chunks, outcome.merged_chunks, outcome.remote_chunks) == (6, 0, 0)
    assert outcome.disk_chunks == 6 - sum(ref.key in a.cache.tier for ref in refs[:0])
    stats = a.cache.stats()
    assert stats["hits"]["disk"] == outcome.disk_chunks
    assert stats["hit_bytes"]["disk"] == outcome.disk_chunks * LAYOUT.wire_bytes
    assert stats["disk"]["promotions"] == {"ok": 6}
    await a.cache.quiesce(soon())
    # What came up is still below and is not written twice.
    written = disk_of(a).written_chunks
    await a.pull(refs[:6])
    await a.cache.quiesce(soon())
    assert disk_of(a).written_chunks == written


async def test_everything_that_moves_is_in_the_history(world: World, tmp_path: Path) -> None:
    a = await make_site(world, tmp_path, chunks=1, disk={"chunks": 2})
    refs = make_refs(LAYOUT, 4)
    await store(a, refs)
    await a.pull([refs[2]])
    await a.cache.quiesce(soon())
    await a.cache.drop("all")
    moves = [
        (e["op"], e["tier"], refs.index(next(r for r in refs if r.key.hex() == e["key"])))
        for e in a.events
        if e["op"] in {"store", "evict", "demote", "promote", "drop"}
    ]
    assert moves[:5] == [
        ("store", "dram", 0),
        ("evict", "dram", 0),
        ("store", "dram", 1),
        ("demote", "disk", 0),
        ("evict", "dram", 1),
    ]
    assert ("evict", "disk", 0) in moves and ("promote", "disk", 2) in moves
    assert next(move for move in moves if move[0] == "drop") == ("drop", "dram", 2)
    assert {move[1] for move in moves if move[0] == "drop"} == {"dram", "disk"}


async def test_a_store_never_waits_for_the_disk_and_a_full_queue_lets_go(
    world: World, tmp_path: Path
) -> None:
    slow = DiskCost(write_bytes_per_s=1e12, write_latency_s=0.05)
    a = await make_site(world, tmp_path, spare=2, disk={"cost": slow})
    refs = make_refs(LAYOUT, 12)
    begun = now_ns()
    for ref in refs:
        assert await a.cache.store(ref, filling(ref, LAYOUT))
        a.cache.check_integrity()
    assert now_ns() - begun < 50_000_000
    assert demotions(a)["full"] == 6
    await a.cache.quiesce(soon())
    assert demotions(a) == {"full": 6, "written": 2}
    table = a.cache.directory.table  # type: ignore[attr-defined]
    here = [bool(sites) for sites in table.locate([ref.key for ref in refs])]
    assert here == [ref.key in a.cache.tiers for ref in refs]
    assert sum(here) == 6


async def test_write_through_pins_no_more_than_may_wait(world: World, tmp_path: Path) -> None:
    slow = DiskCost(write_bytes_per_s=1e12, write_latency_s=0.05)
    a = await make_site(
        world, tmp_path, chunks=4, spare=2, write="write-through", disk={"cost": slow}
    )
    for ref in make_refs(LAYOUT, 4):
        assert await a.cache.store(ref, filling(ref, LAYOUT))
    assert a.cache.tier.stats()["pinned"] == a.cache.stats()["disk"]["demoting"] == 2
    assert demotions(a) == {"full": 2}
    a.cache.check_integrity()


async def test_what_came_up_for_a_peer_waits_for_its_answer(world: World, tmp_path: Path) -> None:
    a = await make_site(world, tmp_path, chunks=1, spare=1, write="write-through", lease_s=0.2)
    refs = make_refs(LAYOUT, 2)
    for ref in refs:
        await store(a, [ref])
    source = a.cache._source
    assert not source.ready(refs[0].key)
    await source.reach(refs[0].key, refs[0].tenant)
    assert not await a.cache.store(make_refs(LAYOUT, 1, seed=5)[0], filling(refs[0], LAYOUT))
    served = source.open(refs[0].key, refs[0].tenant, "b")
    assert not isinstance(served, str)
    served.release()
    assert a.cache.tier.stats()["pinned"] == 0
    # An answer that is never opened holds its chunk no longer than a lease.
    await source.reach(refs[1].key, refs[1].tenant)
    assert a.cache.tier.stats()["pinned"] == 1
    await asyncio.sleep(0.3)
    assert a.cache.tier.stats()["pinned"] == 0


async def test_nothing_is_published_that_went_before_it_could_be_told(
    world: World, tmp_path: Path
) -> None:
    a = await make_site(world, tmp_path)
    (ref,) = make_refs(LAYOUT, 1)
    await store(a, [ref])
    await a.cache.drop("all")
    await a.cache.store(ref, filling(ref, LAYOUT), publish=False)
    a.cache._announcer.publish_soon([ref.key])
    a.cache.tiers.drop("all", [ref.key])
    await a.cache.quiesce(soon())
    assert not len(a.cache.directory.table)  # type: ignore[attr-defined]


async def test_coming_up_begins_at_lookup(world: World, tmp_path: Path) -> None:
    a = await make_site(
        world, tmp_path, write="write-through", disk={"cost": replace(FAST, read_latency_s=0.08)}
    )
    refs = make_refs(LAYOUT, 3)
    await store(a, refs)
    await a.cache.drop("dram")
    plan = await a.cache.lookup(refs, soon())
    assert sorted(plan.promoted) == [0, 1, 2] and plan.local_chunks == 3
    await asyncio.sleep(0.09)  # the request waits for its turn
    got: list[bytes] = []

    async def take(index: int, entry: Entry) -> None:
        got.append(bytes(entry.view))

    begun = now_ns()
    outcome = await a.cache.fetch(plan, soon(), take)
    assert now_ns() - begun < 50_000_000
    assert got == bytes_of(refs) and outcome.disk_chunks == 3 and outcome.merged_chunks == 0


async def test_two_requests_bring_a_chunk_up_once(world: World, tmp_path: Path) -> None:
    a = await make_site(
        world, tmp_path, write="write-through", disk={"cost": replace(FAST, read_latency_s=0.02)}
    )
    refs = make_refs(LAYOUT, 3)
    await store(a, refs)
    await a.cache.drop("dram")
    results = await asyncio.gather(a.pull(refs), a.pull(refs), a.pull(refs))
    assert all(got == bytes_of(refs) for _, got in results)
    assert disk_of(a).read_chunks == 3


async def test_a_prefix_longer_than_dram_comes_up_piece_by_piece(
    world: World, tmp_path: Path
) -> None:
    a = await make_site(world, tmp_path, chunks=3, spare=3)
    refs = make_refs(LAYOUT, 9)
    for ref in refs:
        await store(a, [ref])
    outcome, got = await a.pull(refs)
    assert got == bytes_of(refs) and not outcome.misses
    await a.cache.quiesce(soon())


async def test_peers_are_served_from_the_disk(world: World, tmp_path: Path) -> None:
    a, b = await pair(world, tmp_path)
    refs = make_refs(LAYOUT, 7)
    await store(a, refs)
    assert len(disk_of(a)) >= 3
    outcome, got = await b.pull(refs)
    assert got == bytes_of(refs) and outcome.sites == {"a": 7}
    assert b.cache.stats()["hits"]["remote"] == {"a": 7}
    assert b.cache.stats()["hit_bytes"]["remote"] == {"a": 7 * LAYOUT.wire_bytes}


async def test_another_tenant_gets_nothing_from_the_disk_not_even_a_read(
    world: World, tmp_path: Path
) -> None:
    a, b = await pair(world, tmp_path, write="write-through")
    refs = make_refs(LAYOUT, 2)
    await store(a, refs)
    await a.cache.drop("dram")
    stolen = [ChunkRef(ref.key, ref.parent, ref.tokens, "rival") for ref in refs]
    for site in (a, b):
        outcome, got = await site.pull(stolen)
        assert not got and outcome.misses == {"foreign": 1}
    assert disk_of(a).time.busy_ns["read"] == 0 and disk_of(a).hits == 0
    assert (await a.pull(refs))[0].usable_chunks == 2


async def test_a_collision_of_keys_on_the_disk_is_caught_by_the_tokens(
    world: World, tmp_path: Path
) -> None:
    a = await make_site(world, tmp_path, write="write-through")
    (ref,) = make_refs(LAYOUT, 1)
    await store(a, [ref])
    await a.cache.drop("dram")
    collided = ChunkRef(ref.key, ref.parent, tuple(reversed(ref.tokens)), ref.tenant)
    outcome, got = await a.pull([collided])
    assert not got and outcome.misses == {"mismatch": 1}
    assert ref.key not in a.cache.tier  # what nobody asked for takes no room
    assert (await a.pull([ref]))[1] == bytes_of([ref])


@pytest.mark.parametrize("queued", [False, True])
async def test_rot_is_a_counted_miss_and_the_directory_learns_it(
    world: World, tmp_path: Path, queued: bool
) -> None:
    a, b = await pair(world, tmp_path, write="write-through")
    refs = make_refs(LAYOUT, 3)
    await store(a, refs)
    await a.cache.drop("dram")
    (path,) = tmp_path.rglob(refs[1].key.hex() + ".kv")
    damaged = bytearray(path.read_bytes())
    damaged[-100] ^= 4
    path.write_bytes(damaged)
    plan = await a.cache.lookup(refs, soon())
    if queued:  # found out before the request is fetched for
        await asyncio.sleep(0.02)
    got: list[bytes] = []

    async def take(index: int, entry: Entry) -> None:
        got.append(bytes(entry.view))

    outcome = await a.cache.fetch(plan, soon(), take)
    assert got == bytes_of(refs[:1]) and outcome.misses == {"corrupt": 1}
    assert a.cache.misses == {"corrupt": 1}
    await a.cache.quiesce(soon())
    assert not path.exists()
    assert [e["cause"] for e in a.ops("drop")[3:]] == ["unusable"]
    outcome, got = await b.pull(refs)
    assert got == bytes_of(refs[:1]) and b.cache.misses == {"absent": 1}
    # Computed again, it is whole again.
    await a.cache.store(refs[1], filling(refs[1], LAYOUT))
    assert (await b.pull(refs))[1] == bytes_of(refs)


async def test_a_restart_serves_what_the_disk_kept(world: World, tmp_path: Path) -> None:
    first, b = await pair(world, tmp_path, write="write-through")
    refs = make_refs(LAYOUT, 6)
    await store(first, refs)
    await first.cache.close()
    again = await make_site(world, tmp_path, port=first.port)
    await again.cache.connect(soon())
    assert again.cache.stats()["disk"]["indexed"] == 6 and not len(again.cache.tier)
    await b.cache.reconnect(soon())
    outcome, got = await b.pull(refs)
    assert got == bytes_of(refs) and outcome.sites == {"a": 6}


async def test_the_directory_hears_when_the_last_copy_goes(world: World, tmp_path: Path) -> None:
    a = await make_site(world, tmp_path, chunks=2, disk={"chunks": 3})
    refs = make_refs(LAYOUT, 9)
    for ref in refs:
        await store(a, [ref])
    table = a.cache.directory.table  # type: ignore[attr-defined]
    assert [bool(s) for s in table.locate([r.key for r in refs])] == [False] * 4 + [True] * 5
    assert [ref.key in a.cache.tiers for ref in refs] == [False] * 4 + [True] * 5


async def test_drops_by_tier(world: World, tmp_path: Path) -> None:
    a = await make_site(world, tmp_path, write="write-through")
    refs = make_refs(LAYOUT, 4)
    await store(a, refs)
    table = a.cache.directory.table  # type: ignore[attr-defined]

    def known() -> int:
        return sum(bool(sites) for sites in table.locate([ref.key for ref in refs]))

    assert await a.cache.drop(keys=[refs[0].key]) == 1 and known() == 4
    assert await a.cache.drop("disk", [refs[1].key]) == 1 and known() == 4
    assert await a.cache.drop("all", [refs[0].key, refs[1].key]) == 2 and known() == 2
    assert await a.cache.drop("disk") == 2 and known() == 2
    assert await a.cache.drop() == 2 and known() == 0
    with pytest.raises(CacheError, match=r"no tier 'tape'"):
        await a.cache.drop("tape")  # type: ignore[arg-type]


async def test_a_purge_reaches_what_is_on_its_way(world: World, tmp_path: Path) -> None:
    slow = DiskCost(1e12, 1e12, 0.03, 0.03)
    a = await make_site(world, tmp_path, chunks=2, spare=4, disk={"cost": slow})
    refs = make_refs(LAYOUT, 5)
    for ref in refs:  # two in DRAM, one being written, two waiting
        await a.cache.store(ref, filling(ref, LAYOUT))
        await asyncio.sleep(0)
    assert a.cache.stats()["disk"]["demoting"] == 3
    assert await a.cache.drop("all") >= 4
    assert not a.cache.tiers.keys() or a.cache.stats()["disk"]["demoting"] == 1
    await a.cache.quiesce(soon())
    assert not a.cache.tiers.keys() and not list(tmp_path.rglob("*.kv"))
    await store(a, refs[:3])
    await a.cache.drop("dram")
    plan = await a.cache.lookup(refs[:1], soon())
    assert list(plan.promoted) == [0]
    await a.cache.drop("all")
    outcome = await a.cache.fetch(plan, soon(), _nothing)
    assert outcome.usable_chunks == 0 and outcome.misses == {"absent": 1}
    assert not a.cache.tiers.keys()


async def _nothing(index: int, entry: Entry) -> None:
    return None


@pytest.mark.parametrize(
    ("write", "expected"), [("write-back", 0), ("write-through", 4), ("hot-only", 2)]
)
async def test_write_policies(world: World, tmp_path: Path, write: str, expected: int) -> None:
    a = await make_site(world, tmp_path, write=write)
    refs = make_refs(LAYOUT, 4)
    await store(a, refs)
    assert len(disk_of(a)) == (4 if write == "write-through" else 0)
    await a.pull(refs[:2])
    await a.cache.quiesce(soon())
    assert len(disk_of(a)) == expected
    await store(a, make_refs(LAYOUT, 4, seed=1))  # the first four have to go
    assert len(disk_of(a)) == {"write-back": 4, "write-through": 8, "hot-only": 2}[write]
    assert disk_of(a).stats()["written_bytes"] == len(disk_of(a)) * LAYOUT.wire_bytes


@pytest.mark.parametrize("write", ["write-back", "write-through", "hot-only"])
async def test_the_simulator_of_the_benchmark_does_what_the_tiers_do(
    world: World, tmp_path: Path, write: str
) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
    from tiers import Level, TwoTiers

    a = await make_site(world, tmp_path, chunks=12, spare=12, disk={"chunks": 20}, write=write)
    plain = TwoTiers(Level("lru", 12), Level("lru", 20), write)
    families = [make_refs(LAYOUT, 5, seed=seed) for seed in range(12)]
    rng = random.Random(write)
    for _ in range(150):
        refs = families[int(12 * rng.random() ** 1.5)][: rng.randint(1, 5)]
        keys = [ref.key for ref in refs]
        expected = plain.request(keys)
        outcome, got = await a.pull(refs)
        assert got == bytes_of(refs[: outcome.usable_chunks])
        assert outcome.usable_chunks == expected
        for ref in refs:
            await a.cache.store(ref, filling(ref, LAYOUT), publish=False)
        await a.cache.publish(keys)
        await a.cache.quiesce(soon())
        assert sorted(a.cache.tier.keys()) == sorted(plain.dram.keys)
        assert sorted(disk_of(a).keys()) == sorted(plain.lower.keys)  # type: ignore[union-attr]
    assert disk_of(a).written_chunks == plain.written > 10
    hits = a.cache.stats()["hits"]
    assert (hits["dram"], hits["disk"]) == (plain.dram_hits, plain.lower_hits)
    assert plain.lower_hits > 10 or write == "hot-only"


async def test_hot_is_also_what_is_stored_again_soon_and_what_was_fetched(
    world: World, tmp_path: Path
) -> None:
    a = await make_site(world, tmp_path, write="hot-only", publish="hot")
    b = await world.site("b", LAYOUT, peers={"a": ("127.0.0.1", a.port)})
    a.cache.add_peer("b", "127.0.0.1", b.port)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    refs = make_refs(LAYOUT, 4)
    await store(a, refs)
    assert (await b.cache.lookup(refs, soon())).remote_chunks == 0  # nothing is published
    await store(a, make_refs(LAYOUT, 4, seed=1))
    assert not len(disk_of(a))
    await store(a, refs[:2])
    assert disk_of(a).keys() == [refs[0].key, refs[1].key]
    assert (await b.cache.lookup(refs, soon())).remote_chunks == 2
    other = make_refs(LAYOUT, 2, seed=2)
    await b.put(other)
    await a.pull(other)
    await a.cache.quiesce(soon())
    assert disk_of(a).keys() == [refs[0].key, refs[1].key, other[0].key, other[1].key]


async def test_hot_publishing_tells_at_the_first_reuse(world: World, tmp_path: Path) -> None:
    a = await make_site(world, tmp_path, publish="hot")
    refs = make_refs(LAYOUT, 3)
    await store(a, refs)
    table = a.cache.directory.table  # type: ignore[attr-defined]
    assert not len(table)
    await a.pull(refs[:2])
    await a.cache.quiesce(soon())
    assert len(table) == 2


async def test_a_disk_that_fails_leaves_a_site_with_dram(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    a = await make_site(world, tmp_path, disk={"retry_s": 0.02})
    real = os.write

    def refuse(descriptor: int, piece: memoryview) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk_file, "_write", refuse)
    refs = make_refs(LAYOUT, 12)
    with caplog.at_level(logging.WARNING):
        for ref in refs:
            await store(a, [ref])
    assert len(caplog.records) == 1
    assert demotions(a)["down"] == 8 and not len(disk_of(a))
    assert (await a.pull(refs[8:]))[1] == bytes_of(refs[8:])
    monkeypatch.setattr(disk_file, "_write", real)
    await asyncio.sleep(0.05)
    await store(a, make_refs(LAYOUT, 4, seed=1))
    assert len(disk_of(a)) == 4 and not disk_of(a).outage.down
    assert [e["op"] for e in a.events if e["op"].startswith("disk")] == ["disk-down", "disk-up"]


async def test_closing_with_everything_under_way_leaves_the_books_in_order(
    world: World, tmp_path: Path
) -> None:
    slow = DiskCost(1e12, 1e12, 0.2, 0.2)
    a = await make_site(world, tmp_path, chunks=3, spare=3, disk={"cost": slow})
    refs = make_refs(LAYOUT, 6)
    await store(a, refs[:4])
    assert len(disk_of(a)) == 1
    for ref in refs[4:]:
        await a.cache.store(ref, filling(ref, LAYOUT))
    fetching = asyncio.ensure_future(a.pull(refs[:2]))
    await asyncio.sleep(0.01)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    await a.cache.close()
    a.cache.check_integrity(deep=True)  # and the fixture looks for pins and reservations


async def test_a_disk_needs_places_where_chunks_can_wait(tmp_path: Path, world: World) -> None:
    with pytest.raises(ConfigError, match="spare places"):
        await make_site(world, tmp_path / "a", spare=0)
    for wrong in ({"write": "sometimes"}, {"publish": "none"}):
        with pytest.raises(ConfigError, match="unknown"):
            await make_site(world, tmp_path / next(iter(wrong)), **wrong)


async def test_spare_places_hold_only_what_is_on_its_way_down() -> None:
    tier = DramTier(LAYOUT, 2 * LAYOUT.wire_bytes, "lru", spare=1)
    kept: list[Entry | None] = []
    tier.offer = lambda key, entry: kept.append(entry)
    refs = make_refs(LAYOUT, 4)
    from geokv.cache.record import checksums, make_header

    for ref in refs:
        slot = tier.reserve(ref.key)
        slot.view[:] = content(ref, LAYOUT)
        sums = checksums(LAYOUT, slot.view)
        tier.commit(slot, make_header(ref, LAYOUT, sums, slot.generation, 1))
        tier.check_integrity(deep=True)
    # The first was kept in the spare place; for the second there was none.
    assert [entry is None for entry in kept] == [False, True]
    first = kept[0]
    assert first is not None and bytes(first.view) == content(refs[0], LAYOUT)
    assert tier.stats()["leaving"] == 1 and len(tier) == 2
    first.release()
    tier.check_integrity()


def test_a_storm_of_requests_over_lying_disks() -> None:
    from tiers_storm import storm

    told = storm(rounds=12, seed=1000)
    assert told["rounds"] == 12
    assert min(told[what] for what in ("promoted", "corrupt", "refused", "cancelled", "drops")) > 0
