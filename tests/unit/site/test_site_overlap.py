"""Two sites on loopback, a prefix layer group by layer group, the engine computing behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from cache_proxy import Proxy
from site_processes import CHUNK_BYTES, CHUNK_TOKENS, SiteRoom, free_port
from test_site_sharing import CHUNKS, PREFIX, assert_same_answer, control, provide, question
from test_site_sharing import recomputed as without_reuse

LAYERED = {"layer_groups": 4, "overlap": True, "byte_scale": 64}
"""Twice the bytes of the model's own KV: four groups, of which two bring a real layer."""


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    made = await Proxy(free_port()).start()
    yield made
    await made.close()


async def test_an_answer_over_a_layered_prefix_is_the_recomputed_one(own_room: SiteRoom) -> None:
    a, b = own_room.pair(**LAYERED)
    await provide(a, b)
    assert (await b.ask("layered", question(1))).error is None
    record = b.record("layered")
    assert (record["source"], record["chunks_remote"]) == ("remote", CHUNKS)
    assert record["cached_tokens"] == len(PREFIX)
    assert record["wire_bytes"] == CHUNKS * 2 * CHUNK_BYTES
    assert record["misses"] == {}
    stamps = ("admitted", "looked_up", "last_byte", "usable", "loaded", "scheduled", "prefilled")
    times = [record[f"{name}_ns"] for name in stamps]
    assert times == sorted(times)
    # What has come is cached like any other chunk, here and for others.
    await control(b, "/settle")
    await control(b, "/drop", tiers=["device"])
    assert (await b.ask("again", question(1))).error is None
    assert b.record("again")["source"] == "dram"
    assert_same_answer(record, await without_reuse(b, question(1), "oracle"))


async def test_the_device_already_has_some_of_it(own_room: SiteRoom) -> None:
    a, b = own_room.pair(**LAYERED)
    await provide(a, b)
    # Half a chunk more than three of them lies on the device.
    part = PREFIX[: 3 * CHUNK_TOKENS + CHUNK_TOKENS // 2]
    assert (await b.ask("part", [*part, 1])).error is None
    await control(b, "/settle")
    assert (await b.ask("rest", question(2))).error is None
    record = b.record("rest")
    assert record["device_tokens"] == len(part)
    assert record["cached_tokens"] == len(PREFIX)
    assert_same_answer(record, await without_reuse(b, question(2), "oracle"))


@pytest.mark.parametrize("damage", ["flip", "cut"])
@pytest.mark.parametrize("at_group", [0, 2])
async def test_what_is_lost_on_the_way_is_computed(
    own_room: SiteRoom, proxy: Proxy, damage: str, at_group: int
) -> None:
    a, b = own_room.pair(through=proxy.port, **LAYERED)
    proxy.target_port = a.settings.kv_port
    await provide(a, b)
    group_bytes = CHUNKS * 2 * CHUNK_BYTES // 4
    proxy.arm(damage, offset=at_group * group_bytes + group_bytes // 2)
    assert (await b.ask("damaged", question(3))).error is None
    assert proxy.fired == 1
    record = b.record("damaged")
    assert sum(record["misses"].values()) >= 1
    assert record["cached_tokens"] % CHUNK_TOKENS == 0
    assert record["cached_tokens"] < len(PREFIX)
    assert_same_answer(record, await without_reuse(b, question(3), "oracle"))


async def test_a_wire_that_stands_still_ends_at_the_fetch_deadline(
    own_room: SiteRoom, proxy: Proxy
) -> None:
    a, b = own_room.pair(through=proxy.port, fetch_deadline_s=0.5, **LAYERED)
    proxy.target_port = a.settings.kv_port
    await provide(a, b)
    proxy.arm("stall", offset=CHUNKS * CHUNK_BYTES)
    assert (await b.ask("stalled", question(4))).error is None
    record = b.record("stalled")
    assert set(record["misses"]) == {"timeout"}
    assert_same_answer(record, await without_reuse(b, question(4), "oracle"))
