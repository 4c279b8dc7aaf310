"""Faults of links and of load: each fires, is seen from outside and heals, or says why not."""

import asyncio
import json

import pytest

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.drill.log import DrillLog
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults import fault_class
from geokv.coordinator.faults.light import light_up
from geokv.coordinator.fleet import Fleet
from geokv.errors import FaultError, LabError
from geokv.lab.build import Lab
from geokv.lab.check import check_links, wait_idle
from geokv.lab.outage import carriers, cut
from geokv.lab.plan import compile_plan
from geokv.lab.sight import LinkSight, PathSight
from geokv.scenario.load import load_scenario

DRILL = {
    "name": "t",
    "title": "t",
    "question": "t?",
    "topology": "metro-ring",
    "deployment": {"content": "synthetic"},
    "cache": {"directory": {"kind": "central", "site": "a"}},
    "workload": {"kind": "stream", "askers": {"b": 1}, "providers": ["a"], "requests": 1},
}


def scenario(tmp_path, *timeline):
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(DRILL | {"timeline": list(timeline)}))
    return load_scenario(path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    plan = compile_plan(scenario(tmp_path_factory.mktemp("t")).topology)
    with Lab.build(plan) as lab:
        yield lab


@pytest.fixture
def lab(shared):
    """A ring that every test leaves as it found it."""
    plan = shared.plan
    yield shared
    assert shared.plan == plan
    for link in plan.links:
        assert carriers(shared, link) == (True, True)
        assert wait_idle(shared, link)
    assert [one.problems for one in check_links(shared, ["a-b"])] == [[]]


@pytest.fixture
def make(lab, tmp_path):
    """A fault from its event, on a stage with this lab and no sites."""
    log = DrillLog(tmp_path / "history.jsonl")

    def build(**event):
        whole = scenario(tmp_path, {"at": 0, **event})
        (one,) = whole.timeline
        stage = Stage(whole, lab, Fleet(), log, lambda *_, **__: None)
        return fault_class(one.fault)(one, stage)

    yield build
    log.close()


def about_now(evidence, within_s=0.2):
    return 0 <= now_ns() - evidence.t_ns < within_s * 1e9


async def test_a_cut_fires_once_and_heals(lab, make):
    fault, second = (make(fault="link-cut", link="a-b") for _ in range(2))
    seen = await fault.inject()
    assert about_now(seen) and seen.data["carrier"] == [False, False]
    assert seen.data["probe_bytes"] <= 64 * seen.data["probes"]
    with pytest.raises(FaultError, match=r"^link a-b has no light to lose"):
        await second.inject()
    # the second did nothing, so its end does not give the light back
    await second.heal()
    assert carriers(lab, "a-b") == (False, False)
    healed = await fault.heal()
    assert about_now(healed) and healed.data["carrier"] == [True, True]
    assert fault.target == "a-b"


async def test_light_is_seen_when_it_comes_however_long_the_way(lab, make):
    lab.disturb("a-b", km=2000)
    fault = make(fault="link-cut", link="a-b")
    await fault.inject()
    asked_ns = now_ns()
    assert (await fault.heal()).t_ns - asked_ns < 3_000_000
    assert now_ns() - asked_ns > 10_000_000
    lab.disturb("a-b", km=10)


async def test_a_cut_given_up_in_the_middle_leaves_no_cut(lab, make):
    fault = make(fault="link-cut", link="a-b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.002):
            await fault.inject()
    assert carriers(lab, "a-b") == (True, True)


async def test_flaps_keep_to_their_clock(lab, make):
    fault = make(fault="link-flap", link="a-b", times=5, down="20ms", up="30ms")
    seen = await fault.inject()
    with LinkSight(lab, "a-b") as sight:
        for number in range(5):
            begin_ns = seen.t_ns + number * 50_000_000
            if number:
                assert abs(await sight.until_shut(looks=1, deadline_s=1) - begin_ns) < 3_000_000
            opened = await sight.until_open(deadline_s=1)
            assert abs(opened.sent_ns - begin_ns - 20_000_000) < 3_000_000
    await asyncio.sleep(0.03)
    healed = await fault.heal()
    assert (healed.data["asked"], healed.data["seen_dark"], healed.data["seen_lit"]) == (5, 5, 5)


async def test_flaps_that_are_ended_early_end_with_light(lab, make):
    fault = make(fault="link-flap", link="a-b", times=50, down="1s", up="1s")
    await fault.inject()
    await asyncio.sleep(0.1)
    healed = await fault.heal()
    assert (healed.data["seen_dark"], healed.data["seen_lit"]) == (1, 0)


async def test_flaps_that_stop_by_themselves_did_not_fire(lab, make):
    """One of five is no loose connector; light comes back all the same."""
    fault = make(fault="link-flap", link="a-b", times=5, down="20ms", up="30ms")
    seen = await fault.inject()
    await wait_until_ns(seen.t_ns + 45_000_000)
    fault._rest.cancel()
    await wait_until_ns(seen.t_ns + 250_000_000)
    with pytest.raises(FaultError, match=r"dark 1 times of 5 asked and lit again 1 times, when 5"):
        await fault.heal()
    assert carriers(lab, "a-b") == (True, True)


async def test_one_way_is_cut_and_the_other_is_not(lab, make):
    fault = make(fault="link-one-way-cut", link="a-b", **{"from": "b"})
    seen = await fault.inject()
    assert 2 <= seen.data["dropped"] <= seen.data["probes"]
    with LinkSight(lab, "a-b") as sight:
        assert await sight.crosses(0) is not None
        assert await sight.crosses(1) is None
    assert carriers(lab, "a-b") == (True, True)
    await fault.heal()


async def test_silence_on_a_link_and_between_two_sites(lab, make):
    fault = make(fault="silent-drop", link="a-b")
    seen = await fault.inject()
    assert 4 <= seen.data["dropped"] <= seen.data["probes"]
    with PathSight(lab, "a", "c") as sight:
        assert await sight.crosses(0) is None and await sight.crosses(1) is None
        await fault.heal()
        assert await sight.crosses(0) is not None
    fault = make(fault="silent-drop", **{"from": "c", "to": "a"})
    await fault.inject()
    assert fault.target == "c-to-a"
    with PathSight(lab, "c", "a") as sight, PathSight(lab, "b", "a") as near:
        assert await sight.crosses(0) is None
        assert await sight.crosses(1) is not None
        assert await near.crosses(0) is not None
        await fault.heal()
        assert await sight.crosses(0) is not None


async def test_a_partition_parts_its_groups_and_nobody_else(lab, make):
    fault = make(fault="partition", groups=[["a", "c"], ["b"]])
    seen = await fault.inject()
    assert about_now(seen)
    with (
        PathSight(lab, "a", "b") as parted,
        PathSight(lab, "a", "c") as through,
        PathSight(lab, "b", "e") as outside,
    ):
        assert await parted.crosses(0) is None and await parted.crosses(1) is None
        # from a to c the way leads through b, whose own packets a does not get
        assert lab.plan.path("a", "c").sites == ("a", "b", "c")
        assert await through.crosses(0) is not None
        assert await outside.crosses(0) is not None
        await fault.heal()
        assert await parted.crosses(0) is not None and await parted.crosses(1) is not None


@pytest.mark.parametrize(
    ("change", "sign", "words"),
    [
        ({"delay": "2ms"}, "rtt_ns", "a round trip of 4.1"),
        ({"jitter": "40us"}, "spread_ns", "round trips that spread by 0.0"),
        ({"rate": "4G"}, "rate_bps", "a line of 4 Gb/s"),
        ({"loss": 0.05}, "loss", "% of frames lost"),
        ({"duplicate": 0.05}, "duplicate", "% of frames doubled"),
        ({"corrupt": 0.1}, "corrupt", "% of frames damaged"),
        ({"reorder": 0.1}, "overtook", "% of frames overtaken"),
        (
            {"loss_model": {"kind": "gilbert-elliott", "good_to_bad": 0.02, "bad_to_good": 0.2}},
            "loss",
            "% of frames lost",
        ),
    ],
)
async def test_a_degraded_link_shows_it(lab, make, change, sign, words):
    fault = make(fault="link-degrade", link="a-b", **change)
    tcp = lab.tcp("a")
    seen = await fault.inject()
    assert seen.data["measured"][sign] > 0 and words in seen.seen
    assert seen.data["probe_bytes"] <= 600_000
    assert lab.tcp("a") == tcp
    if sign == "rtt_ns":
        assert seen.data["measured"][sign] == pytest.approx(4_100_000, abs=20_000)
    if sign == "rate_bps":
        assert seen.data["measured"][sign] == pytest.approx(1e9, rel=0.02)
    if sign == "spread_ns":
        # Each way within ±40 µs: 160 µs between the shortest and the longest round trip at most.
        assert 20_000 <= seen.data["measured"][sign] <= 160_000 + 2_000
    healed = await fault.heal()
    assert healed.data["rtt_ns"] == pytest.approx(100_000, abs=20_000)


async def test_a_jitter_that_the_kernel_has_and_packets_do_not_is_none(lab, make, monkeypatch):
    """Round trips are looked at, and not only what was set."""
    fault = make(fault="link-degrade", link="a-b", jitter="40us")
    disturb = lab.disturb

    def only_said(link, **changes):
        plan = disturb(link, **changes)
        if changes.get("jitter"):
            disturb(link, jitter=0)
        return plan

    monkeypatch.setattr(lab, "disturb", only_said)
    with pytest.raises(FaultError, match=r"^round trips over a-b spread by \d+ ns"):
        await fault.inject()
    await fault.heal()


async def test_everything_at_once_shows_too(lab, make):
    lab.disturb("a-b", rate="25G")
    fault = make(fault="link-degrade", link="a-b", loss="1%", delay="1ms", rate="625M")
    seen = (await fault.inject()).data["measured"]
    assert seen["rtt_ns"] > 2_000_000 and seen["loss"] > 0
    assert seen["rate_bps"] == pytest.approx(156_250_000, rel=0.02)
    await fault.heal()
    lab.disturb("a-b", rate=None)


async def test_a_link_that_is_like_that_already_does_not_degrade(lab, make):
    first, second = (make(fault="link-degrade", link="a-b", delay="1ms", loss=0.1) for _ in "ab")
    await first.inject()
    third = make(fault="link-degrade", link="a-b", loss=0.1)
    with pytest.raises(FaultError, match="is like that already"):
        await third.inject()
    await third.heal()
    assert lab.link_plan("a-b").mean_loss == pytest.approx(0.1)
    await first.heal()
    await second.heal()


async def test_a_switched_path_is_dark_and_then_longer_and_back(lab, make):
    fault = make(fault="path-switch", link="a-b", outage="80ms", km=89)
    seen = await fault.inject()
    assert 80_000_000 <= seen.data["back_ns"] - seen.t_ns < 85_000_000
    assert seen.data["rtt_ns"] == pytest.approx(890_000, abs=5_000)
    assert lab.plan.path("a", "b").sites == ("a", "b")
    healed = await fault.heal()
    assert 80_000_000 <= healed.t_ns - healed.data["dark_ns"] < 85_000_000
    assert healed.data["rtt_ns"] == pytest.approx(100_000, abs=5_000)
    with pytest.raises(FaultError, match="is 10 km long already"):
        await make(fault="path-switch", link="a-b", km=10).inject()
    quick = make(fault="path-switch", link="a-b", outage=0, km=20)
    assert (await quick.inject()).data["rtt_ns"] == pytest.approx(200_000, abs=5_000)
    await quick.heal()


async def test_background_takes_its_share_and_stops(lab, make):
    lab.disturb("a-b", rate="4G")
    for kind, flows in (("udp", 2), ("tcp", 4)):
        fault = make(fault="background", link="a-b", kind=kind, share=0.5, flows=flows)
        seen = await fault.inject()
        assert seen.data["asked_bps"] == 500_000_000
        assert seen.data["line_bps"] >= 450_000_000
        healed = await fault.heal()
        assert healed.data["flows"] == 2 * flows
        rate = healed.data["moved_bytes"] * 8 / healed.data["lasted_s"] / 2
        assert rate == pytest.approx(500_000_000, rel=0.15)
        assert wait_idle(lab, "a-b")
    one_way = make(fault="background", link="a-b", share=0.5, direction="b-to-a")
    await one_way.inject()
    assert (await one_way.heal()).data["flows"] == 1
    lab.disturb("a-b", rate=None)


async def test_background_on_a_dark_link_did_not_fire(lab, make):
    fault = make(fault="background", link="a-b", kind="udp", share=0.1)
    fault.deadline_s = 2.0
    cut(lab, "a-b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(fault.deadline_s):
            await fault.inject()
    await fault.heal()
    await light_up(lab, "a-b")


async def test_many_send_to_one_and_all_of_it_comes(lab, make):
    fault = make(fault="incast", to="b", bytes="16MiB", **{"from": ["a", "c", "d"]})
    seen = await fault.inject()
    assert (seen.data["senders"], seen.data["bytes_each"]) == (3, 4 * 2**20)
    healed = await fault.heal()
    assert len(healed.data["took_s"]) == 3
    assert healed.t_ns > seen.t_ns
    assert healed.data["goodput_bps"] > 1e9


async def test_nobody_sends_where_nothing_passes(lab, make):
    cut(lab, "a-b")
    cut(lab, "b-c")
    fault = make(fault="incast", to="b", bytes="1MiB", **{"from": ["a"]})
    with pytest.raises(LabError, match=r"^background flows could not start"):
        await fault.inject()
    await fault.heal()
    await light_up(lab, "a-b")
    await light_up(lab, "b-c")
