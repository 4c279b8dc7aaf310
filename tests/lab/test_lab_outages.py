"""Light that goes and comes, packets that vanish, lines that change: each seen from outside."""

import asyncio
import socket

import pytest

from geokv.clock import now_ns
from geokv.errors import ConfigError, LabError
from geokv.lab import wiring
from geokv.lab.build import Lab
from geokv.lab.check import check_link, wait_idle
from geokv.lab.controller import ApnController
from geokv.lab.enter import in_netns
from geokv.lab.outage import carriers, cut, restore
from geokv.lab.plan import compile_plan
from geokv.lab.sieve import Networks, add_rule, dropped, remove_rule
from geokv.lab.sight import LinkSight, PathSight
from geokv.lab.topology import load_topology


@pytest.fixture(scope="module")
def shared():
    with Lab.build(compile_plan(load_topology("pair"))) as lab:
        yield lab


@pytest.fixture
def lab(shared):
    """The module's pair, lit and as planned."""
    restore(shared, "a-b")
    assert wait_idle(shared, "a-b")
    yield shared
    restore(shared, "a-b")


@pytest.fixture(scope="module")
def ring():
    with Lab.build(compile_plan(load_topology("metro-ring"))) as lab:
        yield lab


def tcp_pair(lab, near="a", far="b"):
    with in_netns(lab.netns(far)):
        door = socket.create_server((lab.address(far), 0))
    with in_netns(lab.netns(near)):
        out = socket.socket()
    with door:
        out.settimeout(5)
        out.connect(door.getsockname())
        into, _ = door.accept()
    into.settimeout(5)
    return out, into


async def test_a_cut_takes_both_carriers_and_restoring_gives_them_back(lab):
    with LinkSight(lab, "a-b") as sight:
        assert await sight.crosses(0) and await sight.crosses(1)
        cut(lab, "a-b")
        cut_ns = now_ns()
        assert carriers(lab, "a-b") == (False, False)
        for end in (0, 1):
            assert await sight.until_shut(end, deadline_s=1) - cut_ns < 50_000_000
        with pytest.raises(LabError, match="nothing comes through"):
            await sight.until_open(deadline_s=0.05)
        restore(lab, "a-b")
        restored_ns = now_ns()
        assert carriers(lab, "a-b") == (True, True)
        assert (await sight.until_open(deadline_s=1)).came_ns - restored_ns < 5_000_000
        assert sight.sent_bytes <= sight.packets * 64
    assert check_link(lab, "a-b").ok


async def test_a_connection_survives_a_cut_that_is_shorter_than_its_patience(lab):
    out, into = tcp_pair(lab)
    with out, into:
        out.send(b"before")
        assert into.recv(6) == b"before"
        cut(lab, "a-b")
        out.send(b"while")
        await asyncio.sleep(0.3)
        restore(lab, "a-b")
        start_ns = now_ns()
        assert await asyncio.to_thread(into.recv, 5) == b"while"
        assert now_ns() - start_ns < 500_000_000


async def test_what_is_on_its_way_is_lost_with_the_light(lab):
    lab.disturb("a-b", km=2000)
    with in_netns(lab.netns("b")):
        into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with in_netns(lab.netns("a")):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with into, out:
        into.bind((lab.address("b"), 0))
        into.settimeout(0.1)
        for kept in (True, False):
            out.sendto(b"x", into.getsockname())
            assert lab.qdiscs("a-b")[0].queued == 1
            if kept:
                assert into.recv(1) == b"x"
            else:
                cut(lab, "a-b")
                restore(lab, "a-b")
                with pytest.raises(TimeoutError):
                    into.recv(1)
    lab.disturb("a-b", km=50)
    assert check_link(lab, "a-b").ok


async def test_a_rule_drops_one_direction_and_counts(lab):
    fibre = lab.fibre_netlink("a-b")
    with LinkSight(lab, "a-b") as sight:
        rule = add_rule(fibre, wiring.port("a"))
        assert carriers(lab, "a-b") == (True, True)
        assert await sight.crosses(0) is None
        assert await sight.crosses(1) is not None
        assert dropped(fibre, rule) == 1
        other = add_rule(fibre, wiring.port("b"))
        assert await sight.crosses(1) is None
        assert (dropped(fibre, rule), dropped(fibre, other)) == (1, 1)
        remove_rule(fibre, rule)
        assert await sight.crosses(0) is not None
        assert await sight.crosses(1) is None
        remove_rule(fibre, other)
        assert await sight.crosses(1) is not None
    with pytest.raises(LabError, match="drop rule"):
        dropped(fibre, rule)
    with pytest.raises(LabError):
        remove_rule(fibre, rule)


async def test_a_rule_between_two_networks_leaves_the_rest_alone(ring):
    fibre = ring.fibre_netlink("a-b")
    nets = {site: (ring.wiring.sites[site].network, 24) for site in "abc"}
    with PathSight(ring, "a", "b") as near, PathSight(ring, "a", "c") as through:
        rule = add_rule(fibre, wiring.port("a"), Networks(nets["a"], nets["b"]))
        assert await near.crosses(0) is None
        assert await near.crosses(1) is not None
        assert await through.crosses(0) is not None
        assert dropped(fibre, rule) == 1
        remove_rule(fibre, rule)
        assert await near.crosses(0) is not None


async def test_a_disturbed_fibre_changes_and_its_hosts_do_not(lab):
    before, tcp = lab.link_plan("a-b"), lab.tcp("a")
    whole = lab.plan
    with LinkSight(lab, "a-b") as sight:
        plan = lab.disturb("a-b", extra_delay="3ms", rate="1G", jitter="10us")
        assert plan.rtt_ns == before.rtt_ns + 6_000_000
        assert plan.rate_bps == 250_000_000
        assert await sight.round_trip_ns() == pytest.approx(6_500_000, abs=50_000)
        assert lab.tcp("a") == tcp
        assert plan.forward.limit_packets >= before.forward.limit_packets
        assert lab.qdiscs("a-b")[0].settings == plan.forward
        assert not check_link(lab, "a-b").problems
        lab.disturb("a-b", extra_delay=0)
        lab.disturb("a-b", rate=None, jitter=None)
        assert await sight.round_trip_ns() == pytest.approx(500_000, abs=10_000)
    assert lab.plan == whole
    assert lab.qdiscs("a-b")[0].settings == before.forward
    with pytest.raises(ConfigError, match=r"links\.a-b\.mtu: not a property of the fibre"):
        lab.disturb("a-b", mtu=1500)
    with pytest.raises(ConfigError, match=r"links\.a-b\.km: must be ≥ 0"):
        lab.disturb("a-b", km=-1)
    assert lab.plan == whole


@pytest.mark.parametrize("revertive", [True, False])
async def test_the_controller_moves_routes_after_the_protection_time(ring, revertive):
    ring.change("a-b", protection="50ms", revertive=revertive)
    seen = []

    def note(what, link, data):
        seen.append((what, link, data))

    async with ApnController(ring, note) as controller:
        with PathSight(ring, "a", "b") as sight:
            assert await sight.round_trip_ns() == pytest.approx(100_000, abs=10_000)
            cut(ring, "a-b")
            start_ns = now_ns()
            crossing = await sight.until_open(deadline_s=1)
            # the other way round is 250 km
            assert await sight.round_trip_ns() == pytest.approx(2_500_000, abs=20_000)
            assert 50_000_000 <= crossing.sent_ns - start_ns <= 60_000_000
            assert ring.plan.path("a", "b").sites == ("a", "e", "d", "c", "b")
            assert controller.avoiding == {"a-b"}
            restore(ring, "a-b")
            await asyncio.sleep(0.2)
            back = await sight.round_trip_ns()
            assert back == pytest.approx(100_000 if revertive else 2_500_000, abs=20_000)
    names = [what for what, _, _ in seen]
    assert names == ["dark", "moved", "lit", *(["moved-back"] if revertive else [])]
    assert {link for _, link, _ in seen} == {"a-b"}
    moved = seen[1][2]
    assert moved["routes"] > 0
    assert 0 <= moved["t_ns"] - seen[0][2]["t_ns"] - 50_000_000 < 1_000_000
    ring.reroute(frozenset())
    ring.change("a-b", protection=None, revertive=True)
    assert ring.plan.path("a", "b").sites == ("a", "b")


async def test_a_flap_shorter_than_the_protection_time_moves_nothing(ring):
    seen = []
    async with ApnController(ring, lambda what, link, data: seen.append(what)):
        for _ in range(3):
            cut(ring, "a-b")
            await asyncio.sleep(0.03)
            restore(ring, "a-b")
            await asyncio.sleep(0.1)
    assert seen == ["dark", "lit"] * 3


async def test_without_protection_or_another_way_nothing_helps(ring, lab):
    ring.change("a-b", protection="never")
    seen = []
    async with ApnController(ring, lambda what, link, data: seen.append(what)):
        with PathSight(ring, "a", "b") as sight:
            cut(ring, "a-b")
            await asyncio.sleep(0.2)
            assert await sight.crosses() is None
            restore(ring, "a-b")
            assert await sight.until_open(deadline_s=1)
    assert seen == ["dark", "no-protection", "lit"]
    ring.change("a-b", protection=None)
    seen.clear()
    async with ApnController(lab, lambda what, link, data: seen.append(what)):
        cut(lab, "a-b")
        await asyncio.sleep(0.2)
        restore(lab, "a-b")
        await asyncio.sleep(0.1)
    assert seen == ["dark", "no-other-way", "lit", "moved-back"]


async def test_a_connection_over_the_ring_goes_on_after_a_cut(ring):
    out, into = tcp_pair(ring)
    with out, into:
        out.send(b"before")
        assert into.recv(6) == b"before"
        async with ApnController(ring, lambda *_: None):
            cut(ring, "a-b")
            out.send(b"while")
            start_ns = now_ns()
            assert await asyncio.to_thread(into.recv, 5) == b"while"
            # protection after 50 ms, the sender's timer after 200 ms and a little
            assert 190_000_000 < now_ns() - start_ns < 500_000_000
            restore(ring, "a-b")
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("link", ["a-b", "e-a"])
async def test_light_comes_back_at_once_however_often_it_goes(ring, link):
    # The kernel may act on a carrier a second late, and does so only now and then.
    with LinkSight(ring, link) as sight:
        for _ in range(60):
            cut(ring, link)
            await asyncio.sleep(0.02)
            restore(ring, link)
            restored_ns = now_ns()
            opened = await sight.until_open(deadline_s=2)
            assert opened.sent_ns - restored_ns < 3_000_000
            await asyncio.sleep(0.03)
