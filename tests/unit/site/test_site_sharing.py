"""Two sites on loopback: what crosses between them, and what happens when that goes wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from cache_proxy import Proxy
from site_processes import (
    CHUNK_BYTES,
    CHUNK_TOKENS,
    OTHER,
    Site,
    SiteRoom,
    free_port,
    prompt,
    wait_for,
)

from geokv.site.pulling import first_of
from geokv.site.record import RequestRecord
from geokv.site.settings import Peer

CHUNKS = 16
PREFIX = prompt(CHUNKS * CHUNK_TOKENS, seed=9)


def question(number: int) -> list[int]:
    return PREFIX + prompt(20, seed=100 + number)


async def control(site: Site, path: str, **body: Any) -> None:
    """One control command, while the proxy of this loop goes on carrying bytes."""
    await asyncio.to_thread(site.post, path, **body)


async def provide(a: Site, b: Site) -> None:
    """a has the prefix and the directory knows; b is connected and empty."""
    await control(a, "/connect")
    await control(b, "/connect")
    assert (await a.ask("provide", [*PREFIX, 1])).error is None
    await control(a, "/settle")


def asked_of(site: Site) -> dict[str, Any]:
    """What other sites have had of this one: chunks and directory calls."""
    cache = site.get("/stats")["cache"]
    return {name: cache[name] for name in ("served", "served_bytes", "directory")}


async def recomputed(b: Site, tokens: list[int], name: str) -> dict[str, Any]:
    """b's record of the same question with nothing reused."""
    await control(b, "/settle")
    await control(b, "/policy", reuse="none")
    reply = await b.ask(name, tokens)
    await control(b, "/policy", reuse="remote")
    assert reply.error is None
    record = b.record(name)
    assert record["cached_tokens"] == 0
    assert record["source"] == "none"
    return record


def assert_same_answer(record: dict[str, Any], oracle: dict[str, Any]) -> None:
    assert record["output_ids"] == oracle["output_ids"]
    assert len(record["output_ids"]) == 4
    assert record["first_logits"] == pytest.approx(oracle["first_logits"], abs=1e-4)


@pytest.fixture(scope="module")
def two(room: SiteRoom) -> tuple[Site, Site]:
    return room.pair()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """Stands between b and a; its target is set when a's port is known."""
    made = await Proxy(free_port()).start()
    yield made
    await made.close()


async def test_remote_hit_equals_recompute(two: tuple[Site, Site]) -> None:
    a, b = two
    await provide(a, b)
    reply = await b.ask("hit", question(1))
    assert reply.error is None
    record = b.record("hit")
    assert record["source"] == "remote"
    assert record["chunks_remote"] == CHUNKS
    assert record["cached_tokens"] == len(PREFIX)
    assert record["wire_bytes"] == CHUNKS * CHUNK_BYTES
    assert record["misses"] == {}
    assert_same_answer(record, await recomputed(b, question(1), "hit-oracle"))
    # A greedy answer that ignored its prefix would be equal by luck; this one is not.
    other = await recomputed(b, prompt(len(PREFIX), seed=10) + question(1)[-20:], "other-prefix")
    assert other["output_ids"] != record["output_ids"]


async def test_next_question_is_served_from_the_device(two: tuple[Site, Site]) -> None:
    a, b = two
    await provide(a, b)
    await b.ask("second-0", question(2))
    await control(b, "/settle")  # what it fetched is published in the background
    before = asked_of(a)
    assert (await b.ask("second-1", question(3))).error is None
    record = b.record("second-1")
    assert record["source"] == "device"
    assert record["device_tokens"] == len(PREFIX)
    assert record["wire_bytes"] == 0
    assert asked_of(a) == before


async def test_a_pull_comes_over_the_link_each_time_and_leaves_nothing(
    two: tuple[Site, Site],
) -> None:
    a, b = two
    await provide(a, b)
    await control(b, "/drop", tiers=["device", "dram"])
    for number in range(2):
        asked = {"tenant": "acme", "tokens": PREFIX, "name": f"load-{number}", "source": "a"}
        pulled = await asyncio.to_thread(b.post, "/pull", **asked)
        assert (pulled["remote"], pulled["sites"]) == (CHUNKS, {"a": CHUNKS})
        assert (pulled["wire_bytes"], pulled["misses"]) == (CHUNKS * CHUNK_BYTES, {})
        assert b.get("/held")["dram"] == []


def test_a_pull_asks_who_it_is_told_before_others() -> None:
    assert first_of("c", ("a", "b", "c")) == ("c", "a", "b")
    assert first_of("c", ("a", "b")) == ("a", "b")


async def test_spans_add_up_to_the_clients_ttft(two: tuple[Site, Site]) -> None:
    a, b = two
    await provide(a, b)
    await control(b, "/drop", tiers=["device", "dram"])
    reply = await b.ask("spans", question(4))
    assert reply.first_ns is not None
    data = b.record("spans")
    assert data.pop("source") == "remote" and data.pop("first_logits")
    spans = RequestRecord(**data).spans_ns(reply.sent_ns, reply.first_ns)
    assert sum(spans.values()) == pytest.approx(reply.first_ns - reply.sent_ns, rel=0.01)
    # A telescope always adds up; what shows that its stamps are real is that each step
    # lies after the one before it, and the ones that did something took time.
    assert min(spans.values()) >= 0, spans
    for name in ("queue_ns", "lookup_ns", "fetch_ns", "prefill_ns", "first_byte_ns"):
        assert spans[name] > 10_000, spans
    assert spans["prefill_ns"] < (reply.first_ns - reply.sent_ns) * 0.98


async def test_other_tenant_gets_no_hit_and_the_same_answer(two: tuple[Site, Site]) -> None:
    a, b = two
    await provide(a, b)
    await control(b, "/drop", tiers=["device", "dram"])
    mine = await b.ask("mine", question(5))
    theirs = await b.ask("theirs", question(5), api_key=OTHER.api_key)
    assert mine.error is theirs.error is None
    record = b.record("theirs")
    assert record["tenant"] == "other"
    assert record["cached_tokens"] == record["chunks_remote"] == record["wire_bytes"] == 0
    assert record["source"] == "none"
    assert record["misses"] == {"absent": 1}
    assert record["output_ids"] == b.record("mine")["output_ids"]


async def test_flipped_bit_is_a_counted_miss_and_the_answer_right(
    own_room: SiteRoom, proxy: Proxy
) -> None:
    a, b = own_room.pair(through=proxy.port)
    proxy.target_port = a.settings.kv_port
    await provide(a, b)
    proxy.arm("flip", offset=5 * CHUNK_BYTES)
    reply = await b.ask("flipped", question(6))
    assert proxy.fired == 1
    assert reply.error is None
    record = b.record("flipped")
    assert record["misses"] == {"corrupt": 1}
    assert 0 < record["chunks_remote"] < CHUNKS
    assert record["cached_tokens"] == record["chunks_remote"] * CHUNK_TOKENS
    assert_same_answer(record, await recomputed(b, question(6), "flipped-oracle"))


async def test_stalled_wire_ends_at_the_fetch_deadline(own_room: SiteRoom, proxy: Proxy) -> None:
    a, b = own_room.pair(through=proxy.port, fetch_deadline_s=0.5)
    proxy.target_port = a.settings.kv_port
    await provide(a, b)
    proxy.arm("stall", offset=3 * CHUNK_BYTES)
    started = time.monotonic()
    reply = await b.ask("stalled", question(7))
    took = time.monotonic() - started
    assert proxy.fired == 1
    assert reply.error is None
    assert 0.5 <= took < 3
    record = b.record("stalled")
    assert record["misses"] == {"timeout": 1}
    assert record["chunks_remote"] < CHUNKS
    assert_same_answer(record, await recomputed(b, question(7), "stalled-oracle"))


async def test_provider_killed_while_it_is_fetched_from(own_room: SiteRoom, proxy: Proxy) -> None:
    a, b = own_room.pair(through=proxy.port, fetch_deadline_s=3.0)
    proxy.target_port = a.settings.kv_port
    await provide(a, b)
    proxy.arm("slow", offset=2 * CHUNK_BYTES)
    started = time.monotonic()
    asking = asyncio.create_task(b.ask("orphan", question(8)))
    while not proxy.fired:
        await asyncio.sleep(0.005)
    assert not asking.done()
    a.kill()
    reply = await asking
    took = time.monotonic() - started
    assert reply.error is None
    assert took < 5
    record = b.record("orphan")
    assert sum(record["misses"].values()) == 1
    assert set(record["misses"]) <= {"unreachable", "timeout", "closed", "lost"}
    assert record["chunks_remote"] < CHUNKS
    assert_same_answer(record, await recomputed(b, question(8), "orphan-oracle"))
    # And again, when it is known to be dead: no waiting, no error.
    await control(b, "/drop", tiers=["device", "dram"])
    started = time.monotonic()
    assert (await b.ask("alone", question(8))).error is None
    assert time.monotonic() - started < 4
    assert b.record("alone")["output_ids"] == record["output_ids"]


async def test_killed_site_gives_its_own_client_a_clear_error(own_room: SiteRoom) -> None:
    site = own_room.start(own_room.settings("a", compute="charged", request_deadline_s=60))
    asking = asyncio.create_task(site.ask("victim", prompt(100), max_tokens=5000))
    await asyncio.to_thread(wait_for, "decoding", lambda: site.engine()["decode_tokens"] > 30, 10.0)
    site.kill()
    reply = await asyncio.wait_for(asking, 5)
    assert reply.error is not None
    assert any(word in reply.error for word in ("closed", "Read", "disconnected"))
    assert reply.first_ns is not None


@pytest.mark.parametrize(("door", "words"), [("api_port", "API"), ("kv_port", "KV")])
def test_bound_port_is_named(
    own_room: SiteRoom, two: tuple[Site, Site], door: str, words: str
) -> None:
    taken = getattr(two[0].settings, door)
    said = own_room.last_words(own_room.settings("a", **{door: taken}))
    first, _, hint = said.partition("\n")
    assert f"127.0.0.1:{taken}" in first
    assert words in first
    assert "already" in first
    assert "port" in hint and "→" in hint


def test_sites_that_do_not_share_the_secret_do_not_join(own_room: SiteRoom) -> None:
    a = own_room.start(own_room.settings("a"))
    stranger = own_room.settings("b", secret=b"another secret, also of 32 bytes")
    b = own_room.start(replace(stranger, peers={"a": Peer("127.0.0.1", a.settings.kv_port)}))
    answer = b.control.post("/connect", json={})
    assert answer.status_code == 500
    assert "a" in answer.json()["error"]
    assert "secret" in answer.json()["error"] + answer.json()["hint"]


def test_layouts_that_do_not_fit_are_refused_by_value(own_room: SiteRoom) -> None:
    a = own_room.start(own_room.settings("a"))
    other = own_room.settings("b", chunk_tokens=64)
    b = own_room.start(replace(other, peers={"a": Peer("127.0.0.1", a.settings.kv_port)}))
    said = b.control.post("/connect", json={}).json()["error"]
    assert "chunk_tokens" in said and "64" in said and "32" in said


def test_missing_model_folder_is_named(own_room: SiteRoom) -> None:
    assert "/no/such/model" in own_room.last_words(own_room.settings("a", model="/no/such/model"))
