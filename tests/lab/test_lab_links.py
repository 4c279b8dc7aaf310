"""One link against its plan, by our probes and by tools that are not ours."""

import json
import socket
import subprocess

import pytest

from geokv.errors import ConfigError, LabError
from geokv.lab import wiring
from geokv.lab.build import Lab
from geokv.lab.burst import measure_burst
from geokv.lab.check import check_link, check_links, wait_idle
from geokv.lab.enter import in_netns
from geokv.lab.independent import iperf, iperf_floor, ping, second_opinion
from geokv.lab.netem import apply_netem, read_netem
from geokv.lab.netlink import Netlink
from geokv.lab.plan import compile_plan
from geokv.lab.probe import LinkProbe
from geokv.lab.settings import FourStateU32, NetemSettings
from geokv.lab.topology import load_topology


def fresh(seed=0, scale=4, **link):
    topology = load_topology("pair")
    return compile_plan(topology.with_link("a-b", **link) if link else topology, scale, seed)


@pytest.fixture(scope="module")
def shared():
    with Lab.build(fresh()) as lab:
        yield lab


@pytest.fixture
def lab(shared):
    """The module's lab, put back to its first plan."""
    plain = {"km": 50, "kind": "apn", "rate": None, "detour": None, "loss": None, "mtu": None}
    plain |= {"jitter": None, "corrupt": 0, "reorder": 0, "duplicate": 0, "loss_model": None}
    shared.change("a-b", **plain, congestion=None)
    assert wait_idle(shared, "a-b")
    return shared


@pytest.mark.parametrize("km", [0, 1, 10, 25, 50, 75, 100, 600])
def test_round_trip_is_exact_to_5_us_by_ping_and_by_us(lab, km):
    lab.change("a-b", km=km)
    asked = km * 10_000
    seen = ping(lab, "a-b", count=10)
    assert seen.received == 10
    assert abs(seen.rtt_mean_ns - asked) <= 5_000
    with LinkProbe(lab, "a-b") as probe:
        echoes = probe.echo(10)
    assert len(echoes.rtt_ns) == 10
    assert max(abs(rtt - asked) for rtt in echoes.rtt_ns) <= 5_000
    assert max(abs(way - asked / 2) for way in echoes.forward_ns) <= 3_000


@pytest.mark.parametrize(("scale", "km"), [(4, 100), (1, 100), (4, 0), (4, 10)])
def test_goodput_at_25_and_100_gbps(lab, scale, km):
    plan = lab.change("a-b", km=km, rate=100_000_000_000 * 4 // scale)
    assert plan.rate_bps == 100_000_000_000 // scale
    for site in ("a", "b"):
        burst = measure_burst(lab, "a-b", site)
        assert 0.98 <= burst.goodput_bps / plan.payload_rate_bps <= 1.02


def test_iperf3_agrees(lab):
    plan = lab.change("a-b", km=10, rate="40G")
    result = iperf(lab, "a-b")
    assert iperf_floor(plan, result.bytes) <= result.goodput_bps / plan.payload_rate_bps <= 1.0
    assert result.retransmits == 0


def test_second_opinion_finds_a_rate_that_is_not_the_plans(lab):
    plan = lab.change("a-b", rate="4G")
    half = NetemSettings(
        delay_ns=plan.delay_ns + 20_000, rate_bps=plan.rate_bps // 16 * 8, limit_packets=10_000
    )
    with Netlink(lab.fibre_netns("a-b")) as link:
        apply_netem(link, wiring.port("b"), half)
        assert not second_opinion(lab, "a-b", pings=5).ok
        found = check_link(lab, "a-b")
        assert not found.ok
        assert any("goodput from a to b is 0.5" in problem for problem in found.problems)
        assert any("round trip" in problem for problem in found.problems)
        apply_netem(link, wiring.port("b"), plan.forward)
    assert check_link(lab, "a-b").ok


def test_long_haul_fills_the_line(lab):
    plan = lab.change("a-b", km=3000)
    assert plan.rtt_ns == 30_000_000
    found = check_link(lab, "a-b")
    assert found.ok, found.problems
    assert found.goodput_ratio > 0.98


def test_check_is_cheap_and_repeatable(lab):
    lab.change("a-b", km=100)
    first, second = check_links(lab)[0], check_links(lab)[0]
    assert first.ok and second.ok
    assert abs(first.rtt_measured_ns - second.rtt_measured_ns) <= 1_000
    assert first.goodput_ratio == pytest.approx(second.goodput_ratio, abs=0.002)
    assert json.loads(json.dumps(first.record()))["ok"] is True


@pytest.mark.parametrize("kind", ["lan", "leased", "ip-wan", "ip-shared", "internet"])
def test_every_profile_passes_its_own_check(lab, kind):
    lab.change("a-b", km=0 if kind == "lan" else 50, kind=kind)
    found = check_link(lab, "a-b", quick=False)
    assert found.ok, found.problems


def test_settings_survive_a_change_and_reach_the_kernel(lab):
    change = {"km": 77, "rate": "3.2G", "loss": 0.02, "jitter": "7us", "corrupt": 0.01}
    plan = lab.change("a-b", **change, reorder=0.03, duplicate=0.04, mtu=1500)
    forward, backward = lab.qdiscs("a-b")
    assert (forward.settings, backward.settings) == (plan.forward, plan.backward)
    assert lab.tcp("a").rmem_bytes == lab.plan.tcp["a"].rmem_bytes
    with pytest.raises(ConfigError, match=r"links\.a-b\.km"):
        lab.change("a-b", km=-1)
    assert lab.plan.links["a-b"] == plan


def test_iproute2_reads_what_we_wrote(lab):
    lab.change("a-b", km=77, rate="200G", loss=0.02, jitter="7us", duplicate=0.25)
    with in_netns(lab.fibre_netns("a-b")):
        done = subprocess.run(
            ["tc", "-j", "qdisc", "show", "dev", wiring.port("b")],
            capture_output=True,
            check=True,
        )
    options = json.loads(done.stdout)[0]["options"]
    assert options["delay"]["delay"] == pytest.approx(385e-6, abs=1.1e-6)  # tc prints whole µs
    assert options["delay"]["jitter"] == pytest.approx(7e-6, abs=1.1e-6)
    assert options["rate"]["rate"] == 50_000_000_000 // 8
    assert options["loss-random"]["loss"] == pytest.approx(0.02, abs=1e-6)
    assert options["duplicate"]["duplicate"] == pytest.approx(0.25, abs=1e-6)
    assert options["limit"] == lab.link_plan("a-b").forward.limit_packets


def test_every_field_is_written_and_read(lab):
    with Netlink(lab.fibre_netns("a-b")) as link:
        odd = NetemSettings(
            delay_ns=123_457,
            jitter_ns=1_001,
            rate_bps=800_000_000_000,
            limit_packets=70_000,
            loss_chain=FourStateU32(1, 2, 3, 4, 5),
            corrupt_u32=6,
            reorder_u32=7,
            reorder_gap=8,
            duplicate_u32=9,
            delay_correlation_u32=10,
            loss_correlation_u32=11,
            duplicate_correlation_u32=12,
            reorder_correlation_u32=13,
            corrupt_correlation_u32=14,
            seed=2**64 - 15,
        )
        for settings in (odd, NetemSettings(), lab.link_plan("a-b").forward):
            apply_netem(link, wiring.port("b"), settings)
            assert read_netem(link, wiring.port("b")).settings == settings


def test_a_change_drops_nothing_that_is_on_its_way(lab):
    lab.change("a-b", km=20_000)
    with in_netns(lab.netns("b")):
        into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with in_netns(lab.netns("a")):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with into, out:
        into.bind((lab.address("b"), 0))
        into.settimeout(2)
        for number in range(20):
            out.sendto(bytes([number]), into.getsockname())
        assert lab.qdiscs("a-b")[0].queued == 20
        lab.change("a-b", km=10, rate="10G")
        assert [into.recv(10)[0] for _ in range(20)] == list(range(20))


def test_congestion_control_follows_the_link(lab):
    lab.change("a-b", congestion="bbr")
    with in_netns(lab.netns("b")):
        door = socket.create_server((lab.address("b"), 0))
    with in_netns(lab.access_netns("a")):
        client = socket.socket()
    with in_netns(lab.netns("a")):
        out = socket.socket()
    with door, client, out:
        out.settimeout(5)
        out.connect(door.getsockname())
        into, _ = door.accept()
        with into:
            for end in (out, into):
                name = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                assert name.rstrip(b"\0") == b"bbr"
            assert into.getpeername()[0] == lab.address("a")
        client.settimeout(5)
        client.connect(door.getsockname())
        assert client.getsockname()[0] == lab.access_address("a")


def test_changes_work_inside_an_event_loop(lab):
    import asyncio

    async def main():
        lab.change("a-b", km=25)
        return check_link(lab, "a-b")

    assert asyncio.run(main()).ok


def test_a_closed_lab_says_so():
    with Lab.build(fresh()) as lab:
        path = lab.access_netns("a")
        with pytest.raises(ConfigError, match="no site is named 'x'"):
            lab.netns("x")
    with pytest.raises(LabError, match="the lab is closed"):
        lab.netns("a")
    with pytest.raises(LabError), in_netns(path):
        pass
    lab.close()
