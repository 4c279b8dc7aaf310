"""Other people's traffic: as much as asked, by the counters of the line and by its receivers."""

import asyncio

import pytest

from geokv.clock import now_ns
from geokv.errors import LabError
from geokv.lab.background import Flow, Traffic, link_flows, path_flow
from geokv.lab.build import Lab
from geokv.lab.check import check_link, wait_idle
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology


@pytest.fixture(scope="module")
def shared():
    with Lab.build(compile_plan(load_topology("pair"))) as lab:
        yield lab


@pytest.fixture
def lab(shared):
    shared.change("a-b", km=50, kind="apn", rate="4G")
    assert wait_idle(shared, "a-b")
    return shared


async def rate_of(count, seconds=0.1):
    """What a counter of bytes gains a second, in bit/s."""
    start, start_ns = count(), now_ns()
    await asyncio.sleep(seconds)
    return (count() - start) * 8e9 / (now_ns() - start_ns)


@pytest.mark.parametrize("kind", ["apn", "ip-shared"])
@pytest.mark.parametrize(("share", "flows"), [(0.5, 1), (0.95, 4)])
async def test_datagrams_take_their_share_of_the_line_and_no_more(lab, kind, share, flows):
    lab.change("a-b", kind=kind)
    async with Traffic(link_flows(lab, "a-b", "a", "udp", share, flows)) as traffic:
        rate_bps = lab.link_plan("a-b").rate_bps
        await asyncio.sleep(0.01)
        seen = await rate_of(lambda: lab.qdiscs("a-b")[0].sent_bytes)
        assert seen / rate_bps == pytest.approx(share, rel=0.01)
        offered = await rate_of(lambda: sum(count.sent_bytes for count in traffic.counts()))
        assert offered / rate_bps == pytest.approx(share, rel=0.01)
        assert lab.qdiscs("a-b")[1].sent_packets < 100 + seen
    before = lab.qdiscs("a-b")[0].sent_bytes
    assert wait_idle(lab, "a-b")
    assert await rate_of(lambda: lab.qdiscs("a-b")[0].sent_bytes) == 0
    assert traffic.counts()[0].sent_bytes > 0 and before > 0
    assert check_link(lab, "a-b").ok


@pytest.mark.parametrize(("share", "flows"), [(0.5, 1), (0.8, 4)])
async def test_elephants_take_their_share_where_there_is_room(lab, share, flows):
    async with Traffic(link_flows(lab, "a-b", "b", "tcp", share, flows)) as traffic:
        await asyncio.sleep(0.05)
        payload_bps = lab.link_plan("a-b").payload_rate_bps
        seen = await rate_of(lambda: sum(count.arrived_bytes for count in traffic.counts()), 0.2)
        assert seen / payload_bps == pytest.approx(share, rel=0.02)


async def test_elephants_yield_to_datagrams(lab):
    lab.change("a-b", kind="ip-shared")
    greedy = link_flows(lab, "a-b", "a", "tcp", 0.9, 4)
    rude = link_flows(lab, "a-b", "a", "udp", 0.7, 1)
    async with Traffic(greedy) as elephants, Traffic(rude):
        await asyncio.sleep(0.2)
        payload_bps = lab.link_plan("a-b").payload_rate_bps
        seen = await rate_of(lambda: sum(count.arrived_bytes for count in elephants.counts()), 0.2)
        assert 0.1 < seen / payload_bps < 0.32
        assert lab.qdiscs("a-b")[0].dropped > 0


async def test_a_transfer_of_so_many_bytes_ends_by_itself(lab):
    size = 4 * 2**20
    start_ns = now_ns()
    async with Traffic([path_flow(lab, "a", "b", size)]) as traffic:
        while not traffic.counts()[0].ended_ns:
            assert now_ns() - start_ns < 1_000_000_000
            await asyncio.sleep(0.001)
    sent, arrived, ended_ns = traffic.counts()[0]
    assert sent == arrived == size
    ideal_ns = size * 8e9 / lab.link_plan("a-b").payload_rate_bps
    assert ideal_ns < ended_ns - start_ns < 2 * ideal_ns + 10 * lab.link_plan("a-b").rtt_ns


async def test_the_same_traffic_comes_at_the_same_moments(lab):
    counts = []
    for _ in range(2):
        async with Traffic(link_flows(lab, "a-b", "a", "udp", 0.3, 2)) as traffic:
            await asyncio.sleep(0.05)
            counts.append([count.sent_bytes for count in traffic.counts()])
    assert counts[0] == pytest.approx(counts[1], rel=0.01)


async def test_what_cannot_start_says_why():
    nowhere = Flow("udp", "/nowhere", "/nowhere", "10.0.0.1", "10.0.0.2", 1e6, 1000, 1042)
    traffic = Traffic([nowhere])
    with pytest.raises(LabError, match=r"could not start: .*/nowhere"):
        await traffic.start()
