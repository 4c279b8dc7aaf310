"""The control socket's doors for drills: pools, keys, and what can be made worse on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from site_processes import ACME, CHUNK_TOKENS, OTHER, Site, SiteRoom, prompt, wait_for

from geokv.cache.lifetime.forgetting import PurgeSettings
from geokv.cache.membership import MembershipSettings

CHUNKS = 4
PREFIX = prompt(CHUNKS * CHUNK_TOKENS, seed=71)
POOL = {"total", "free", "cached", "pinned", "reserved", "leases", "promised"}


@pytest.fixture(scope="module")
def pair(room: SiteRoom) -> tuple[Site, Site]:
    return room.pair(audit=True, compute="charged", content="synthetic")


def events(site: Site, op: str) -> list[dict[str, Any]]:
    """What a killed site would have left: nothing is asked to flush."""
    lines = Path(site.settings.history_path).read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["op"] == op]


def refused(site: Site, path: str, **body: Any) -> str:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        site.post(path, **body)
    return str(caught.value.response.json()["error"])


async def fill(*sites: Site) -> None:
    """The first computes the prefix, the others fetch it."""
    for site in sites:
        assert (await site.ask("fill", [*PREFIX, 1])).error is None
        site.post("/settle")


async def test_pools_add_up_and_every_key_is_named(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await fill(a, b)
    for site in pair:
        for name, pool in site.get("/pools").items():
            assert set(pool) == POOL, name
            parts = pool["free"] + pool["cached"] + pool["pinned"] + pool["reserved"]
            assert parts == pool["total"], name
            assert pool["leases"] == pool["promised"] == pool["pinned"] == 0
        assert len(site.get("/held")["dram"]) == CHUNKS
    held = a.get("/held")["dram"]
    table = a.get("/directory")
    assert table == {**table, "here": True, "keys": {key: ["a", "b"] for key in held}}
    assert b.get("/directory")["here"] is False


async def test_an_audited_site_tells_what_each_request_used(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await fill(a)
    b.post("/drop", tiers=["device", "dram"])
    assert (await b.ask("remote", [*PREFIX, 3])).error is None
    b.post("/settle")
    assert (await b.ask("device", [*PREFIX, 4])).error is None
    b.post("/settle")
    b.post("/drop", tiers=["device"])
    assert (await b.ask("dram", [*PREFIX, 5])).error is None
    used = {
        name: [event["source"] for event in events(b, "use") if event["request_id"] == name]
        for name in ("remote", "device", "dram")
    }
    assert used == {name: [name.replace("remote", "a")] * CHUNKS for name in used}
    (life,) = events(b, "life")
    assert (life["phase"], life["incarnation"]) == ("serving", 1)


async def test_a_pull_comes_over_the_link_each_time_and_leaves_nothing(
    pair: tuple[Site, Site],
) -> None:
    a, b = pair
    await fill(a)
    b.post("/drop", tiers=["device", "dram"])
    for number in range(2):
        pulled = b.post("/pull", tenant=ACME.name, tokens=PREFIX, name=f"load-{number}")
        assert (pulled["remote"], pulled["sites"], pulled["misses"]) == (CHUNKS, {"a": CHUNKS}, {})
        assert pulled["wire_bytes"] > 0
        assert b.get("/held")["dram"] == []
        used = [event for event in events(b, "use") if event["request_id"] == f"load-{number}"]
        assert len(used) == CHUNKS
    # another tenant's prefix of the same words is another's
    foreign = b.post("/pull", tenant=OTHER.name, tokens=PREFIX, name="load-other")
    assert (foreign["remote"], foreign["misses"]) == (0, {"absent": 1})
    # what is here already is no load, and stays
    local = a.post("/pull", tenant=ACME.name, tokens=PREFIX[: 2 * CHUNK_TOKENS], name="load-a")
    assert local["remote"] == 0
    assert len(a.get("/held")["dram"]) == CHUNKS


async def test_rot_is_one_bit_where_the_chunk_lies(pair: tuple[Site, Site]) -> None:
    a, _ = pair
    await fill(a)
    (key,) = a.post("/rot", tier="dram", chunks=1, seed=3)["keys"]
    assert key in a.get("/integrity")["integrity"]
    assert a.post("/rot", tier="dram", chunks=1, seed=3)["keys"] == [key]  # the same bit again
    assert a.get("/integrity") == {"integrity": "ok"}
    assert "no disk" in refused(a, "/rot", tier="disk")


async def test_a_slow_gpu_takes_so_many_times_as_long(pair: tuple[Site, Site]) -> None:
    a, _ = pair
    tokens = prompt(4096, seed=72)

    async def prefill_ns(name: str) -> int:
        a.post("/policy", reuse="none")
        assert (await a.ask(name, tokens, max_tokens=1)).error is None
        record = a.record(name)
        return int(record["prefilled_ns"] - record["scheduled_ns"])

    quick = await prefill_ns("quick")
    assert a.post("/slow", gpu=3.0) == {"gpu": 3.0}
    slow = await prefill_ns("slow")
    assert a.post("/slow") == a.get("/slow") == {"gpu": 3.0}  # what is left out stays
    assert "no disk" in refused(a, "/slow", disk=2.0)
    a.post("/slow", gpu=1.0)
    a.post("/policy", reuse="remote")
    assert slow > 2 * quick


async def test_memory_can_be_taken_away(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await fill(a, b)
    total = b.get("/pools")["dram"]["total"]
    said = b.post("/shrink", dram_keep=2 / total)
    assert said == {"slots": 2, "evicted": CHUNKS - 2}
    assert len(b.get("/held")["dram"]) == 2
    b.post("/shrink", dram_keep=1.0)
    assert b.get("/integrity") == {"integrity": "ok"}


async def test_a_revoked_key_opens_nothing_from_the_next_request_on(
    pair: tuple[Site, Site],
) -> None:
    a, b = pair
    foreign = prompt(CHUNK_TOKENS, seed=73)
    assert (await a.ask("before", [*foreign, 1], api_key=OTHER.api_key)).error is None
    a.post("/settle")
    assert a.post("/revoke", tenant=OTHER.name) == {"revoked": OTHER.name}
    reply = await a.ask("after", [*foreign, 1], api_key=OTHER.api_key)
    assert reply.error is not None and "401" in reply.error
    assert (await a.ask("another", [*foreign, 1], api_key=ACME.api_key)).error is None
    # A peer that has not heard of it gets nothing in that name either.
    assert (await b.ask("elsewhere", [*foreign, 1], api_key=OTHER.api_key)).error is None
    assert b.record("elsewhere")["misses"] == {"unauthorised": 1}
    assert "no tenant 'nobody'" in refused(a, "/revoke", tenant="nobody")


FAST = MembershipSettings(0.05, 3, 0.1)


async def test_a_purge_empties_the_device_too_and_a_fence_closes_it(own_room: SiteRoom) -> None:
    more = {
        "audit": True,
        "compute": "charged",
        "content": "synthetic",
        "membership": FAST,
        "purge": PurgeSettings("a", 1.0, own_room.folder / "purges"),
    }
    a, b = own_room.pair(**more)
    wait_for("contact", lambda: not b.get("/stats")["cache"]["purges"]["fenced"])
    await fill(a, b)
    assert (await b.ask("warm", [*PREFIX, 1])).error is None
    assert b.record("warm")["device_tokens"] == len(PREFIX)
    said = a.post("/purge", tenant=ACME.name, purge_id="p-1")
    assert said["by"] == "confirmed" and said["bound_ns"] == 1_000_000_000
    cold = await b.ask("cold", [*PREFIX, 1])
    assert cold.error is None
    record = b.record("cold")
    assert (record["source"], record["device_tokens"]) == ("none", 0)
    assert not [e for e in events(b, "use") if e["request_id"] == "cold"]
    b.post("/settle")
    assert (await b.ask("again", [*PREFIX, 1])).error is None
    assert b.record("again")["device_tokens"] == len(PREFIX)  # what was computed since
    a.kill()
    wait_for("the fence", lambda: b.get("/stats")["cache"]["purges"]["fenced"])
    fenced = await b.ask("fenced", [*PREFIX, 1])
    assert fenced.error is None
    record = b.record("fenced")
    assert (record["source"], record["device_tokens"]) == ("none", 0)
    assert record["misses"] == {"fenced": 1}
    assert "no tenant 'nobody'" in refused(b, "/purge", tenant="nobody", purge_id="p-2")


async def test_a_site_without_purges_names_what_is_missing(pair: tuple[Site, Site]) -> None:
    a, _ = pair
    assert "purge" in refused(a, "/purge", tenant=ACME.name, purge_id="p")
