"""What the history says of a fetch: for whom, which chunk, when each step was, in what parts."""

from __future__ import annotations

import pytest
from cache_sites import World, make_layout, make_refs, soon

LAYOUT = make_layout()


@pytest.mark.parametrize("layered", [False, True])
async def test_a_fetch_says_for_whom_which_chunk_and_when(world: World, layered: bool) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    await b.pull(refs[:1])
    b.events.clear()
    plan = await b.cache.lookup(refs, soon(), "asked")
    await b.fetch(plan, layered=layered)
    fetched = b.ops("fetch")
    # The first chunk lay here already; the others keep their place in the plan.
    assert [event["index"] for event in fetched] == [1, 2, 3]
    for event in fetched:
        assert event["request_id"] == "asked"
        assert event["bytes"] == LAYOUT.wire_bytes
        assert event["parts"] == (LAYOUT.groups if layered else 1)
        stamps = [event[f"{name}_ns"] for name in ("asked", "first_byte", "last_byte", "verified")]
        assert stamps == sorted(stamps) and stamps[0] > 0
        assert event["t_ns"] >= stamps[-1]


async def test_a_fetch_that_fails_says_so_and_when_the_prefix_ended(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    a.cache.tier.drop([refs[1].key])
    plan = await b.cache.lookup(refs, soon(), "asked")
    outcome = await b.fetch(plan, layered=False)
    lost = next(event for event in b.ops("fetch") if event["cause"])
    assert (lost["cause"], lost["index"], lost["request_id"]) == ("absent", 1, "asked")
    assert "bytes" not in lost
    (missed,) = b.ops("miss")
    assert outcome.usable_chunks == 1
    assert outcome.missed_ns == missed["t_ns"] >= outcome.verified_ns


async def test_a_prefix_that_came_whole_was_not_missed(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    outcome, _ = await b.pull(refs)
    assert outcome.missed_ns == 0
