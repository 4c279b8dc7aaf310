"""Faults of sites, disks, directories, tenants: each fires, is seen and heals, or says why not."""

import asyncio
import json
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from geokv.clock import now_ns
from geokv.coordinator.client import Question
from geokv.coordinator.deploy import site_settings, tenants
from geokv.coordinator.drill.client import StreamClient, run_stream_client
from geokv.coordinator.drill.disks import prepare_disk, release_disks
from geokv.coordinator.drill.log import DrillLog
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults import fault_class
from geokv.coordinator.faults.door import knock
from geokv.coordinator.faults.procs import state_of
from geokv.coordinator.fleet import Fleet
from geokv.coordinator.prompts import StreamPrompts
from geokv.errors import FaultError, RunError
from geokv.lab.build import Lab
from geokv.lab.mounts import mounted_below
from geokv.lab.plan import compile_plan
from geokv.scenario.load import load_scenario

DRILL = {
    "name": "t",
    "title": "t",
    "question": "t?",
    "topology": "pair",
    "deployment": {
        "content": "synthetic",
        "byte_scale": 64,
        "device_bytes": "2GiB",
        "dram_bytes": "2GiB",
        "disk_bytes": "4GiB",
    },
    "cache": {
        "directory": {"kind": "central", "site": "a", "anti_entropy": "200ms"},
        "membership": {"period": "50ms"},
        "purge": {"bound": "500ms"},
        "substrate": {"deadline": "300ms"},
        "tiers": {"write": "write-through", "disk": {"retry": "50ms"}},
    },
    "workload": {"kind": "stream", "askers": {"b": 1}, "providers": ["a"], "requests": 1},
}


def scenario(folder, *timeline):
    path = folder / "t.yaml"
    path.write_text(json.dumps(DRILL | {"timeline": list(timeline)}))
    return load_scenario(path)


class Play:
    """Two running sites and a stage; faults are made from their events."""

    def __init__(self, folder, lab, fleet, control, log):
        self.folder, self.log = folder, log
        self.history = folder / "history.jsonl"
        self.whole = scenario(folder)
        for settings in site_settings(self.whole, self.whole, lab, control, folder, "0", 1):
            prepare_disk(settings)
            settings = replace(settings, audit=True)
            fleet.start_site(settings, lab.netns(settings.name))
        self.clients = {}
        for site in ("a", "b"):
            process, pipe = fleet.start_helper(
                f"client-{site}", run_stream_client, lab.access_netns(site)
            )
            self.clients[site] = StreamClient(process, pipe)
        self.stage = Stage(self.whole, lab, fleet, log, lambda *_, **__: None)

    async def begin(self):
        for site in self.stage.sites:
            await self.stage.ready(site)
        for site in self.stage.sites:
            await self.stage.control(site).patient("/connect", 5.0)

    def fault(self, **event):
        whole = scenario(self.folder, {"at": 0, **event})
        (one,) = whole.timeline
        return fault_class(one.fault)(one, self.stage)

    async def ask(self, site, name, seed=1, tenant=0, chunks=2):
        """One request for so many whole chunks and some tokens; the site's record of it."""
        rng = random.Random(seed)
        tokens = [rng.randrange(256) for _ in range(chunks * 256 + 16)]
        reply = await self.clients[site].ask(
            Question(
                name,
                f"http://{self.stage.lab.address(site)}:8000/v1/completions",
                tenants(self.whole)[tenant].api_key,
                "geokv-tiny",
                tokens,
                2,
                5.0,
            )
        )
        if reply.error is not None:
            return reply.error
        await self.stage.control(site).patient("/settle", 5.0)
        return (await self.stage.control(site).get(f"/requests/{name}"))["record"]

    async def table(self):
        return (await self.stage.control("a").get("/directory"))["keys"]

    def events(self, op):
        lines = self.history.read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["op"] == op]

    def of_site(self, site, op):
        lines = (self.folder / f"history-{site}-0.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["op"] == op]


@pytest.fixture
def ground(tmp_path):
    """A lab, and processes: a fleet is waited for outside of any event loop."""
    with Lab.build(compile_plan(scenario(tmp_path).topology)) as lab, Fleet() as fleet:
        yield lab, fleet


@pytest.fixture
async def play(tmp_path, ground):
    """Sites of their own for each test, since most tests end or spoil one."""
    control = Path(tempfile.mkdtemp(prefix="geokv-t-", dir="/run"))
    log = DrillLog(tmp_path / "history.jsonl")
    try:
        made = Play(tmp_path, *ground, control, log)
        await made.begin()
        yield made
        for client in made.clients.values():
            client.stop_listening()
        await made.stage.aclose()
    finally:
        log.close()
        release_disks(control)
        assert mounted_below(str(control)) == []
        shutil.rmtree(control)


def just_now(evidence, within_s=0.5):
    return 0 <= now_ns() - evidence.t_ns < within_s * 1e9


async def test_a_frozen_site_is_there_and_answers_nobody(play):
    fault = play.fault(fault="site-freeze", site="b")
    seen = await fault.inject()
    pid = play.stage.pid("b")
    assert just_now(seen) and state_of(pid) == "T" and play.stage.is_up("b")
    with pytest.raises(RunError, match="within"):
        await play.stage.control("b").get("/stats", deadline_s=0.05)
    healed = await fault.heal()
    assert just_now(healed) and state_of(pid) in ("S", "R")
    await play.stage.control("b").get("/stats")


async def test_a_frozen_site_that_is_killed_is_healed_by_that(play):
    freeze = play.fault(fault="site-freeze", site="b")
    await freeze.inject()
    kill = play.fault(fault="site-kill", site="b", restart="10ms", keep="disk")
    seen = await kill.inject()
    assert "is gone" in seen.seen and state_of(seen.data["pid"]) in ("", "Z")
    assert "is gone" in (await freeze.heal()).seen
    with pytest.raises(FaultError, match=r"^site b does not run"):
        await play.fault(fault="site-freeze", site="b").inject()
    with pytest.raises(FaultError, match=r"^site b does not run"):
        await play.fault(fault="site-restart", site="b").inject()
    await kill.heal()
    assert play.stage.settings("b").incarnation == 2
    phases = [(event["phase"], event["incarnation"]) for event in play.events("life")]
    assert phases[-3:] == [("killed", 1), ("started", 2), ("ready", 2)]


@pytest.mark.parametrize("how", ["empty", "stale"])
async def test_a_restarted_site_finds_its_disk_or_nothing(play, how):
    await fill(play, "a")
    before = (await play.stage.control("a").get("/held"))["disk"]
    assert before
    seen = await play.fault(fault="site-restart", site="a", how=how).inject()
    assert seen.data["away_ns"] > 0
    assert state_of(seen.data["old"]) in ("", "Z") and state_of(seen.data["new"]) in ("S", "R")
    held = await play.stage.control("a").get("/held")
    assert held["dram"] == []
    assert sorted(held["disk"]) == (sorted(before) if how == "stale" else [])
    # and all of it is in the new table
    table = (await play.stage.control("a").get("/directory"))["keys"]
    assert sorted(key for key, sites in table.items() if "a" in sites) == sorted(held["disk"])
    assert [event["phase"] for event in play.events("life")][-3:] == ["ended", "started", "ready"]


def times(evidence):
    return evidence.data["took_ns"] / evidence.data["charged_ns"]


async def test_gpu_and_disk_are_slow_apart(play):
    control = play.stage.control("a")
    gpu, disk = (play.fault(fault=f, site="a", factor=5) for f in ("slow-gpu", "disk-slow"))
    seen = await gpu.inject()
    assert times(seen) == pytest.approx(5, rel=1e-3) and "5 times its charge of" in seen.seen
    assert (await control.get("/slow")) == {"gpu": 5, "disk": 1}
    assert times(await disk.inject()) == pytest.approx(5, rel=0.01)
    assert times(await gpu.heal()) == pytest.approx(1, rel=1e-3)
    assert (await control.get("/slow")) == {"gpu": 1, "disk": 5}
    assert times(await disk.heal()) == pytest.approx(1, rel=0.05)
    assert (await control.get("/slow")) == {"gpu": 1, "disk": 1}


async def test_what_is_slow_is_slow_for_requests(play):
    """A prefill of whole chunks, and a read of them from the disk, by the client's clock."""

    async def waits(name, seed):
        record = await play.ask("a", name, seed=seed, chunks=4)
        return record["prefilled_ns"] - record["loaded_ns"]

    fault = play.fault(fault="slow-gpu", site="a", factor=3)
    quick = await waits("before", 21)
    await fault.inject()
    slow = await waits("while", 22)
    await fault.heal()
    assert slow == pytest.approx(3 * quick, rel=1e-3)
    assert await waits("after", 23) == pytest.approx(quick, rel=1e-3)


async def test_a_gpu_with_work_to_do_is_seen_to_be_slow(play):
    """The step that is timed waits for its turn, which is no part of it."""
    fault = play.fault(fault="slow-gpu", site="a", factor=1.1)
    asking = asyncio.create_task(play.ask("a", "busy", seed=31, chunks=4))
    await asyncio.sleep(0.01)
    assert times(await fault.inject()) == pytest.approx(1.1, rel=5e-3)
    await asking
    assert times(await fault.heal()) == pytest.approx(1, rel=5e-3)


async def test_what_is_set_and_not_felt_is_no_slowness(play, monkeypatch):
    """Nobody believes the site: what its GPU and its disk do is timed."""
    control = play.stage.control("a")
    post = control.post

    async def not_really(path, *args, **body):
        return {} if path == "/slow" else await post(path, *args, **body)

    monkeypatch.setattr(control, "post", not_really)
    for kind in ("slow-gpu", "disk-slow"):
        with pytest.raises(FaultError, match=r"^.* at a, 1(\.0\d*)? times its ch"):
            await play.fault(fault=kind, site="a", factor=1.5).inject()
    monkeypatch.undo()
    fault = play.fault(fault="slow-gpu", site="a", factor=2)
    await fault.inject()
    monkeypatch.setattr(control, "post", not_really)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await fault.heal()
    monkeypatch.undo()
    await fault.heal()


async def test_memory_goes_and_comes(play):
    await fill(play, "a")
    fault = play.fault(fault="memory-pressure", site="a", dram_keep=0.1)
    seen = await fault.inject()
    assert 0 < seen.data["held"] <= seen.data["slots"] and seen.data["evicted"] > 0
    assert (await fault.heal()).data["slots"] > seen.data["slots"]


async def test_a_full_disk_takes_nothing_until_it_has_room(play):
    await fill(play, "a", chunks=8)
    before = (await play.stage.control("a").get("/held"))["disk"]
    fault = play.fault(fault="disk-full", site="a")
    await fault.inject()
    await fill(play, "a", chunks=8, seed=2)
    assert play.of_site("a", "disk-down")
    assert (await play.stage.control("a").get("/held"))["disk"] == before
    await fault.heal()
    await asyncio.sleep(0.2)
    await fill(play, "a", chunks=8, seed=3)
    assert play.of_site("a", "disk-up")
    assert len((await play.stage.control("a").get("/held"))["disk"]) > len(before)
    assert (await play.stage.control("a").get("/integrity"))["integrity"] == "ok"


async def test_a_disk_that_holds_nothing_is_full_all_the_same(play):
    fault = play.fault(fault="disk-full", site="a")
    seen = await fault.inject()
    assert seen.data == {"used": 4096}, "a page of ours: of no size a tmpfs has no limit"
    await fill(play, "a", chunks=8)
    assert play.of_site("a", "disk-down")
    assert (await play.stage.control("a").get("/held"))["disk"] == []
    await fault.heal()
    await asyncio.sleep(0.2)
    await fill(play, "a", chunks=8, seed=2)
    assert play.of_site("a", "disk-up")
    assert (await play.stage.control("a").get("/held"))["disk"]
    assert (await play.stage.control("a").get("/integrity"))["integrity"] == "ok"


async def test_a_store_that_is_out_gives_errors_and_is_as_before_afterwards(play):
    await fill(play, "a", chunks=8)
    folder = Path(play.stage.settings("a").disk.folder)
    before = sorted(folder.rglob("*.kv"))
    fault = play.fault(fault="store-outage", site="a")
    await fault.inject()
    assert not any(path.exists() for path in before)
    await fill(play, "a", chunks=8, seed=2)
    assert play.of_site("a", "disk-down")
    await fault.heal()
    assert sorted(folder.rglob("*.kv")) == before
    await asyncio.sleep(0.2)
    await fill(play, "a", chunks=8, seed=3)
    assert play.of_site("a", "disk-up")
    assert (await play.stage.control("a").get("/integrity"))["integrity"] == "ok"


async def test_bits_flip_on_the_disk_and_in_memory(play):
    with pytest.raises(FaultError, match=r"^the dram of site a holds nothing"):
        await play.fault(fault="bit-rot", site="a").inject()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await play.fault(fault="bit-rot", site="a", tier="disk").inject()
    await fill(play, "a", chunks=8)
    seen = await play.fault(fault="bit-rot", site="a", tier="disk", chunks=2).inject()
    assert len(seen.data["keys"]) == 2
    wrong = (await play.stage.control("a").get("/integrity"))["integrity"]
    assert "disk" in wrong and any(key in wrong for key in seen.data["keys"])
    seen = await play.fault(fault="bit-rot", site="a", chunks=2).inject()
    wrong = (await play.stage.control("a").get("/integrity"))["integrity"]
    assert "dram" in wrong and any(key in wrong for key in seen.data["keys"])


async def test_chunks_are_damaged_after_tcp_and_only_while_it_lasts(play):
    await play.ask("a", "first")
    fault = play.fault(fault="corrupt-chunk", link="a-b", one_in=2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await fault.inject()  # nothing is sent
    seen, record = await asyncio.gather(fault.inject(), play.ask("b", "second"))
    assert seen.data["by"] == ["a"] and just_now(seen)
    assert record["misses"] == {"corrupt": 1} and record["chunks_remote"] == 1
    await play.stage.control("b").post("/drop", tiers=["device", "dram", "disk"])
    assert (await fault.heal()).data == {"damaged": 1}
    record = await play.ask("b", "third")
    assert record["misses"] == {} and record["chunks_remote"] == 2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await fault.inject()  # what it did the first time is no sign of a second


async def test_a_completion_that_is_lost_costs_the_deadline_and_no_lease(play):
    await play.ask("a", "first")
    fault = play.fault(fault="lost-completion", site="a", one_in=2)
    seen, record = await asyncio.gather(fault.inject(), play.ask("b", "second"))
    assert just_now(seen, 1.0) and record["misses"] == {"timeout": 1}
    assert (await fault.heal()).data == {"lost": 1}
    assert (await play.stage.control("a").get("/pools"))["dram"]["leases"] == 0
    await play.stage.control("b").post("/drop", tiers=["device", "dram", "disk"])
    assert (await play.ask("b", "third"))["chunks_remote"] == 2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await fault.inject()


async def test_a_purge_is_asked_and_acknowledged(play):
    await play.ask("a", "first", tenant=1)
    await play.ask("a", "second", seed=2)
    held = (await play.stage.control("a").get("/held"))["dram"]
    assert len(held) == 4
    seen = await play.fault(fault="purge", tenant="tenant-1", site="b", name="p").inject()
    assert seen.data["by"] == "confirmed" and seen.data["bound_ns"] == 500_000_000
    asked, acked = play.events("purge")
    assert (asked["phase"], acked["phase"]) == ("asked", "acked")
    assert asked["purge_id"] == acked["purge_id"] == "p" and acked["tenant"] == "tenant-1"
    assert len((await play.stage.control("a").get("/held"))["dram"]) == 2


async def test_a_revoked_key_opens_no_door(play):
    keys = [tenant.api_key for tenant in tenants(play.whole)]
    assert [await knock(play.stage, "b", key, 1.0) for key in keys] == [200, 200]
    seen = await play.fault(fault="key-revoke", tenant="tenant-1").inject()
    assert seen.data["doors"] == {"a": 401, "b": 401}
    assert [await knock(play.stage, "b", key, 1.0) for key in keys] == [200, 401]
    freeze = play.fault(fault="site-freeze", site="b")
    await freeze.inject()
    assert await knock(play.stage, "b", keys[0], 0.1) is None
    await freeze.heal()


async def test_a_storm_leaves_nothing_of_before(play):
    await play.ask("a", "first")
    seen = await play.fault(fault="eviction-storm", site="a", rounds=2).inject()
    assert seen.data["before"] == seen.data["gone"] == 2
    assert seen.data["stored"] == 2 * 64 and seen.data["evicted"] == 64 + 2
    await play.stage.control("a").patient("/settle", 5.0)
    assert (await play.stage.control("a").get("/integrity"))["integrity"] == "ok"


async def test_a_table_that_was_killed_is_empty_until_the_sites_tell_it_anew(play):
    await play.ask("a", "first")
    fault = play.fault(fault="directory-kill")
    assert (await fault.inject()).data == {"lost": 2}
    assert fault.target == "a"
    with pytest.raises(FaultError, match=r"^site a keeps no table now"):
        await play.fault(fault="directory-kill").inject()
    assert (await play.ask("b", "second"))["misses"] == {"directory": 1}
    await fault.heal()
    await asyncio.sleep(0.5)
    assert set(map(tuple, (await play.table()).values())) == {("a", "b")}


@pytest.mark.parametrize(("how", "known"), [("empty", 0), ("stale", 2)])
async def test_a_table_begins_anew_with_nothing_or_with_what_it_knew(play, how, known):
    fault = play.fault(fault="directory-restart", how=how)
    await play.ask("a", "first")
    await fault.prepare()
    await play.ask("a", "second", seed=2)
    assert len(await play.table()) == 4
    assert (await fault.inject()).data["entries"] == known
    await asyncio.sleep(0.5)
    assert len(await play.table()) == 4
    if how == "stale":
        with pytest.raises(RunError, match="nothing was kept"):
            await fault.inject()


async def test_events_are_lost_repeated_and_overtaken_on_their_way(play):
    loss = play.fault(fault="event-loss", share=1.0)
    seen, _ = await asyncio.gather(loss.inject(), play.ask("b", "first"))
    assert just_now(seen, 1.0) and seen.data == {"by": ["b"]}
    assert (await loss.heal()).data["times"] > 0
    await asyncio.sleep(0.5)  # the next comparison finds it
    assert len(await play.table()) == 2 and play.of_site("a", "gap")
    twice = play.fault(fault="event-duplicate", share=1.0)
    await asyncio.gather(twice.inject(), play.ask("b", "second", seed=2))
    await twice.heal()
    assert len(await play.table()) == 4
    mixed = play.fault(fault="event-reorder", window="200ms")
    asks = [play.ask("b", f"r{i}", seed=10 + i) for i in range(12)]
    await asyncio.gather(mixed.inject(), *asks)
    await mixed.heal()
    await asyncio.sleep(0.5)
    assert len(await play.table()) == 4 + 24


@pytest.mark.parametrize("share", [0.2, 0.6])
async def test_a_tenant_fetches_at_its_share_of_the_line_until_it_is_told_to_stop(play, share):
    lab = play.stage.lab
    # what b's disk can write behind it, which is written through
    lab.change("a-b", rate="2G")
    await prepare(play)
    load = {"fault": "tenant-load", "tenant": "tenant-0", "share": share}
    fault = play.fault(**load, **{"from": "a", "to": "b"})
    assert fault.target == "a-to-b"
    seen = await fault.inject()
    asked_bps = share * lab.plan.path("a", "b").payload_rate_bps
    assert seen.data["asked_bps"] == round(asked_bps)
    # by the counters of the line itself, while eight prefixes come
    before, start_ns = lab.qdiscs("a-b")[0].sent_bytes, now_ns()
    await asyncio.sleep(8 * 8 * seen.data["bytes_each"] / asked_bps)
    line_bps = (lab.qdiscs("a-b")[0].sent_bytes - before) * 8e9 / (now_ns() - start_ns)
    # a chunk that is still at b, or that a is writing just then, does not come again
    assert 0.8 * asked_bps <= line_bps <= 1.05 * asked_bps
    healed = await fault.heal()
    assert just_now(healed) and sum(healed.data["misses"].values()) <= 2
    assert healed.data["failed"] == healed.data["left_out"] == 0
    assert 0.75 * asked_bps <= healed.data["got_bps"] <= 1.05 * asked_bps
    # nothing goes on, nothing is held, and what was brought is not kept
    await asyncio.sleep(0.1)
    before = lab.qdiscs("a-b")[0].sent_bytes
    await asyncio.sleep(0.5)
    assert (lab.qdiscs("a-b")[0].sent_bytes - before) * 8 / 0.5 < 0.01 * asked_bps
    held = await play.stage.control("b").get("/held")
    assert held["dram"] == held["disk"] == []
    for site in ("a", "b"):
        assert (await play.stage.control(site).get("/integrity"))["integrity"] == "ok"


async def test_a_tenant_that_nobody_has_computed_for_fetches_nothing(play):
    load = {"fault": "tenant-load", "tenant": "tenant-0", "share": 0.2}
    with pytest.raises(FaultError, match="nothing of tenant-0 comes from a to b"):
        await play.fault(**load, **{"from": "a", "to": "b"}).inject()
    with pytest.raises(FaultError, match="b has computed nothing of tenant-0"):
        await play.fault(**load, **{"from": "b", "to": "a"}).inject()
    stranger = play.fault(**load | {"tenant": "tenant-1"}, **{"from": "a", "to": "b"})
    with pytest.raises(FaultError, match="a has computed nothing of tenant-1"):
        await stranger.inject()
    assert (await stranger.heal()).seen == "nothing was fetched"


async def prepare(play):
    """The provider computes and publishes what the stream's first tenant asks behind."""
    prompts = StreamPrompts(play.whole.workload, play.whole.seed)
    for number in range(play.whole.workload.prefixes):
        reply = await play.clients["a"].ask(
            Question(
                f"prepare-{number}",
                f"http://{play.stage.lab.address('a')}:8000/v1/completions",
                tenants(play.whole)[0].api_key,
                "geokv-tiny",
                prompts.preparing(0, number),
                1,
                5.0,
            )
        )
        assert reply.error is None
    await play.stage.control("a").patient("/settle", 5.0)


async def fill(play, site, chunks=8, seed=1):
    """Store chunks that nobody asks for."""
    await play.stage.control(site).patient("/storm", 5.0, chunks=chunks, seed=seed)
    await play.stage.control(site).patient("/settle", 5.0)
