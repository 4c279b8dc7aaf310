"""What a checker reads: every place's owner in turn, and what the engine really got."""

from __future__ import annotations

from typing import Any

import pytest
from cache_sites import World, filling, make_layout, make_refs, soon

from geokv.cache import Entry
from geokv.cache.record import checksums

LAYOUT = make_layout()
TAKES = {"store": "tier", "fetch": "", "convert": "", "promote": "", "pushed": ""}
LEAVES = {"evict", "drop"}


def owners(events: list[dict[str, Any]]) -> dict[int, str]:
    """Key by DRAM place after all events; fails where a place has two owners at once."""
    found: dict[int, str] = {}
    for event in events:
        op, place = event["op"], event.get("place", -1)
        if op in TAKES and not event.get("cause") and place >= 0:
            assert place not in found, event
            found[place] = event["key"]
        elif op in LEAVES and event["tier"] == "dram":
            assert found.pop(place) == event["key"], event
    return found


async def test_each_place_has_one_owner_after_the_other(world: World) -> None:
    a, b = await world.pair(LAYOUT, chunks=4)
    for seed in range(5):
        refs = make_refs(LAYOUT, 3, seed)
        await a.put(refs)
        await b.pull(refs)
        await b.cache.push(["a"], refs[0], soon())
        await b.cache.quiesce(soon())
    await a.cache.drop("dram", [refs[1].key])
    for site in (a, b):
        tier = site.cache.tier
        here = {key: tier.place(key) for key in site.cache.tiers.keys("dram")}
        assert owners(site.events) == {place: key.hex() for key, place in here.items()}
        assert len(site.ops("evict")) > 4


async def test_a_serve_says_how_much_there_was_to_send(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 1)
    await a.put(refs)
    await b.pull(refs)
    (stored,), (served,), (fetched,) = a.ops("store"), a.ops("serve"), b.ops("fetch")
    assert served["sent_bytes"] == served["total_bytes"] > LAYOUT.wire_bytes
    assert served["cause"] == "" and served["peer"] == "b"
    for name in ("generation", "incarnation"):
        assert stored[name] == served[name] == fetched[name]
    missing = make_refs(LAYOUT, 1, seed=9)[0]
    assert await a.cache.store(missing, filling(missing, LAYOUT))
    a.cache.tier.drop([missing.key])
    await b.pull([missing])
    assert a.ops("serve")[1] == {
        **a.ops("serve")[1],
        "cause": "absent",
        "sent_bytes": 0,
        "total_bytes": 0,
        "generation": 0,
    }


@pytest.mark.parametrize("layered", [False, True])
async def test_a_use_tells_what_the_engine_really_got(world: World, layered: bool) -> None:
    a, b = await world.pair(LAYOUT, audit=True)
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    stored = {event["key"]: event for event in a.ops("store")}

    async def use(name: str) -> None:
        plan = await b.cache.lookup(refs, soon(), name)

        async def chunk(index: int, entry: Entry) -> None:
            assert entry.source == ("a" if name == "far" else "dram")

        await b.fetch(plan, chunk, layered=layered)

    await use("far")
    assert [event["source"] for event in b.ops("use")] == ["a"] * 3
    for event in b.ops("use"):
        was = stored[event["key"]]
        for name in ("generation", "incarnation", "checksums", "tenant"):
            assert event[name] == was[name], name
        assert event["request_id"] == "far"
    b.events.clear()
    # What lies in memory is damaged: the audit says what was handed over, not what should be.
    b.cache.tier.exposed(refs[1].key)[5] ^= 1
    b.cache.hand_over_unseen(refs[1].key)
    await use("near")
    b.cache.tier.exposed(refs[1].key)[5] ^= 1
    used = b.ops("use")
    assert [event["source"] for event in used] == ["dram"] * 3
    sound = [event["checksums"] == stored[event["key"]]["checksums"] for event in used]
    assert sound == [True, False, True]


async def test_without_audit_nothing_is_computed_twice(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 1)
    await a.put(refs)
    await b.pull(refs)
    assert not b.ops("use")


async def test_a_miss_says_whose_it_was(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 2)
    await b.cache.lookup(refs, soon(), "r-1")
    assert [event["request_id"] for event in b.ops("miss")] == ["r-1"]
    await a.put(refs)
    plan = await b.cache.lookup(refs, soon(), "r-2")
    a.cache.tier.drop([refs[1].key])

    async def take(index: int, entry: Entry) -> None:
        return None

    await b.cache.fetch(plan, soon(), take)
    assert [(e["request_id"], e["cause"]) for e in b.ops("miss")] == [
        ("r-1", "absent"),
        ("r-2", "absent"),
    ]


async def test_a_tenant_nobody_knows_gets_nothing_and_gives_nothing(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    a.cache.knows_tenant = lambda tenant: False
    outcome, got = await b.pull(refs)
    assert not got and outcome.misses == {"unauthorised": 1}
    assert a.ops("serve")[0]["cause"] == "unauthorised"
    ours = make_refs(LAYOUT, 1, seed=3)
    await b.put(ours)
    (error,) = (await b.cache.push(["a"], ours[0], soon())).values()
    assert error is not None and error.cause == "unauthorised"
    a.cache.knows_tenant = lambda tenant: True
    assert len((await b.pull(refs))[1]) == 2


async def test_a_smaller_tier_holds_what_is_read_until_it_is_let_go(world: World) -> None:
    site = await world.site("a", LAYOUT, chunks=8)
    refs = make_refs(LAYOUT, 8)
    for ref in refs:
        await site.cache.store(ref, filling(ref, LAYOUT))
    tier = site.cache.tier
    pins = [tier.pin(ref.key) for ref in refs[:4]]
    assert tier.shrink(2) == 4 and len(tier) == 4
    site.cache.check_integrity(deep=True)
    extra = make_refs(LAYOUT, 1, seed=5)[0]
    assert not await site.cache.store(extra, filling(extra, LAYOUT))  # counted as full
    for pin in pins:
        assert pin is not None
        pin.release()
    assert await site.cache.store(extra, filling(extra, LAYOUT))
    assert len(tier) == 2 and tier.header(extra.key) is not None
    header = tier.header(extra.key)
    assert header is not None and header.checksums == checksums(
        LAYOUT, tier.exposed(extra.key).toreadonly()
    )


@pytest.mark.parametrize("layered", [False, True])
async def test_what_rots_in_memory_is_a_miss_and_goes(world: World, layered: bool) -> None:
    a, b = await world.pair(LAYOUT, audit=True)
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    await b.pull(refs)
    await b.cache.quiesce(soon())
    b.cache.tier.exposed(refs[2].key)[5] ^= 1
    b.events.clear()
    plan = await b.cache.lookup(refs, soon(), "r")

    outcome = await b.fetch(plan, layered=layered)
    assert outcome.misses == {"corrupt": 1} and outcome.usable_chunks == 2
    assert [e["key"] for e in b.ops("use")] == [ref.key.hex() for ref in refs[:2]]
    assert [(e["key"], e["cause"]) for e in b.ops("drop")] == [(refs[2].key.hex(), "corrupt")]
    await b.cache.quiesce(soon())
    assert [e["key"] for e in b.ops("withdraw")] == [refs[2].key.hex()]
    outcome, got = await b.pull(refs)  # and comes anew from who has it whole
    assert outcome.sites == {"a": 1} and len(got) == 4
