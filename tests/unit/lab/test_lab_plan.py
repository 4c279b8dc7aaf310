"""The plan's integers against figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geokv.errors import ConfigError
from geokv.lab.disturb import disturbed
from geokv.lab.link_plan import bdp, payload_rate, wire_time_ns
from geokv.lab.plan import compile_plan
from geokv.lab.settings import U32, GilbertElliottU32, share_u32
from geokv.lab.topology import load_topology


def pair(scale=4, seed=0, **link):
    return compile_plan(
        load_topology(
            {"name": "t", "sites": {"a": {}, "b": {}}, "links": {"a-b": {"km": 100, **link}}}
        ),
        scale,
        seed,
    ).links["a-b"]


def test_hundred_km_of_apn():
    link = pair()
    assert link.forward.delay_ns == link.backward.delay_ns == 500_000
    assert link.rtt_ns == 1_000_000
    assert link.rate_bps == 25_000_000_000
    assert link.payload_rate_bps == 25_000_000_000 * 8948 // 9014
    assert link.bdp_bytes == 3_125_000
    assert link.mtu == 9000
    assert link.offloads
    assert link.protection_ns == 50_000_000


def test_times_do_not_scale_and_rates_do():
    for scale in (1, 2, 4, 16):
        link = pair(scale)
        assert link.rtt_ns == 1_000_000
        assert link.rate_bps == 100_000_000_000 // scale


def test_zero_km_works():
    link = pair(km=0)
    assert (link.rtt_ns, link.bdp_bytes) == (0, 0)
    assert link.forward.limit_packets >= 1000
    assert link.tcp.rmem_bytes[2] == 4 * 2**20


def test_detour_and_equipment():
    assert pair(detour=1.13).delay_ns == 565_000
    assert pair(kind="leased").delay_ns == 100 * 7500 + 50_000
    assert pair(kind="internet", km=50).delay_ns == 7_500_000


def test_payload_rate_at_1500_bytes():
    # 1448 of 1514 bytes: Ethernet 14, IP 20, TCP 20 and timestamps 12
    assert payload_rate(10**10, 1500) == 10**10 * 1448 // 1514


@pytest.mark.parametrize("link", [{}, {"km": 3000}, {"kind": "internet"}, {"kind": "leased"}])
def test_queue_and_windows_are_deep_enough(link):
    plan = pair(1, **link)
    assert plan.forward.limit_packets * plan.mtu >= 2 * plan.bdp_bytes
    assert plan.tcp.rmem_bytes[2] >= min(2**31 - 1, 4 * plan.bdp_bytes)
    assert plan.tcp.wmem_bytes[2] >= min(2**31 - 1, 4 * plan.bdp_bytes)
    if plan.kind == "apn":
        assert plan.forward.limit_packets * plan.mtu >= 16 * plan.tcp.wmem_bytes[2]


def test_each_direction_has_its_own_seed():
    link = pair(seed=7)
    assert link.forward.seed != link.backward.seed
    assert pair(seed=7) == link
    assert pair(seed=8).forward.seed != link.forward.seed


def test_losses():
    assert pair(loss="1%").forward.loss_u32 == round(0.01 * U32)
    assert pair(loss=1).forward.loss_u32 == U32
    chain = pair(
        loss_model={"kind": "gilbert-elliott", "good_to_bad": 0.01, "bad_to_good": 0.25}
    ).forward
    assert chain.loss_chain == GilbertElliottU32(share_u32(0.01), share_u32(0.25), 0, 0)
    assert chain.mean_loss == pytest.approx(0.01 / 0.26)
    assert chain.loss_u32 == 0


@pytest.mark.parametrize(
    "change", [{"loss": 0.1}, {"jitter": "1us"}, {"corrupt": 0.1}, {"reorder": 0.1}]
)
def test_offloads_go_off_where_single_packets_matter(change):
    assert not pair(**change).offloads


def test_impossible_values_are_refused_with_their_path():
    with pytest.raises(ConfigError, match=r"links\.a-b\.jitter: must be ≤ the one-way delay"):
        pair(jitter="1ms")
    with pytest.raises(ConfigError, match=r"links\.a-b\.rate: .*byte scale"):
        pair(100, rate=8)
    with pytest.raises(ConfigError, match=r"byte_scale: must be ≥ 1, got 0"):
        pair(0)
    with pytest.raises(ConfigError, match=r"links\.a-b\.reorder"):
        pair(km=0, reorder=0.1)


def test_routes_take_the_fewest_km():
    plan = compile_plan(load_topology("metro-ring"))
    assert plan.path("a", "d").sites == ("a", "b", "c", "d")
    assert plan.path("a", "e").links == ("e-a",)
    assert plan.path("a", "d").rtt_ns == 850_000
    # a to e is 100 km direct and 160 km the other way round
    changed = plan.replan("e-a", km=200)
    assert changed.path("a", "e").sites == ("a", "b", "c", "d", "e")


def test_a_link_says_how_it_is_protected():
    assert pair().revertive
    assert pair(protection="1s", revertive=False).protection_ns == 1_000_000_000
    assert not pair(protection="1s", revertive=False).revertive
    assert pair(protection=0).protection_ns == 0
    assert pair(protection="never").protection_ns is None
    for wrong in (-1, "soon"):
        with pytest.raises(ConfigError, match=r"links\.a-b\.protection"):
            pair(protection=wrong)


def test_extra_delay_is_one_way_and_beside_the_distance():
    assert pair(extra_delay="2ms").delay_ns == 2_500_000
    assert pair(kind="leased", detour=1, extra_delay="1us").delay_ns == 500_000 + 51_000


@pytest.mark.parametrize("scale", [1, 4, 16])
def test_a_routers_queue_is_as_long_in_time_at_every_rate(scale):
    link = pair(scale, kind="ip-shared", rate="100G")
    assert not link.offloads
    in_queue = link.forward.limit_packets * link.mtu - link.bdp_bytes / 2
    assert in_queue * 8 / link.rate_bps == pytest.approx(link.rtt_ns / 1e9, rel=0.02)
    assert pair(scale, kind="ip-shared", rate="100M").forward.limit_packets == 40


def test_routes_around_a_link_and_back():
    plan = compile_plan(load_topology("metro-ring"))
    clear = plan.around(frozenset({"a-b"}))
    assert clear.path("a", "b").sites == ("a", "e", "d", "c", "b")
    assert clear.path("c", "d") == plan.path("c", "d")
    assert clear.tcp == plan.tcp and clear.links == plan.links
    # a change meanwhile does not lead anybody back onto it, nor widen windows for the long way
    changed = clear.replan("c-d", km=51)
    assert changed.path("a", "b").sites == ("a", "e", "d", "c", "b")
    assert changed.tcp == plan.replan("c-d", km=51).tcp
    assert clear.around(frozenset()) == plan
    # with both ways dark everybody is told what would be right if there were light
    assert plan.around(frozenset({"a-b", "e-a"})).path("a", "b") == plan.path("a", "b")


def test_a_disturbed_fibre_leaves_hosts_routes_and_other_links_alone():
    plan = compile_plan(load_topology("metro-ring"))
    longer = disturbed(plan, "e-a", km=400, rate="10G", loss=0.01)
    link, was = longer.links["e-a"], plan.links["e-a"]
    assert (link.rtt_ns, link.rate_bps) == (4_000_000, 2_500_000_000)
    assert (link.tcp, link.mtu) == (was.tcp, was.mtu)
    assert longer.tcp == plan.tcp and longer.routes == plan.routes
    on_its_way = -(-2_500_000_000 * 1_500_000 // (8 * 10**9 * 9000))
    assert link.forward.limit_packets == was.forward.limit_packets + on_its_way
    assert {name for name in plan.links if plan.links[name] != longer.links[name]} == {"e-a"}
    twice = disturbed(longer, "e-a", jitter="5us")
    assert twice.links["e-a"].forward.limit_packets == link.forward.limit_packets
    # a controller that moves routes meanwhile goes by the distances it knows
    assert twice.around(frozenset({"a-b"})).path("a", "b") == plan.around(frozenset({"a-b"})).path(
        "a", "b"
    )
    assert twice.around(frozenset()).routes == plan.routes
    back = disturbed(disturbed(twice, "e-a", km=100, jitter=None), "e-a", rate=None, loss=None)
    assert back == plan


def test_path_takes_the_narrowest_link():
    plan = compile_plan(load_topology("hub-spoke")).replan("hub-a", rate="10G", mtu=1500)
    path = plan.path("a", "d")
    assert (path.rate_bps, path.mtu) == (2_500_000_000, 1500)
    assert path.payload_rate_bps == payload_rate(2_500_000_000, 1500)
    assert plan.tcp["d"].rmem_bytes[2] >= 4 * path.bdp_bytes
    with pytest.raises(ConfigError, match="no path from 'a' to 'x'"):
        plan.path("a", "x")


@pytest.mark.parametrize("km", [0, 10])
def test_equal_ways_are_told_apart_the_same_from_both_ends(km):
    """On a grid of equal links, way and return are one path, and next hops never loop."""
    names = [f"s{row}{column}" for row in range(3) for column in range(3)]
    links = {}
    for name in names:
        row, column = int(name[1]), int(name[2])
        for far in (f"s{row + 1}{column}", f"s{row}{column + 1}"):
            if far in names:
                links[f"{name}-{far}"] = {"km": km}
    plan = compile_plan(
        load_topology({"name": "grid", "sites": dict.fromkeys(names), "links": links})
    )
    for start in names:
        for goal in names:
            if goal == start:
                continue
            way = plan.path(start, goal)
            assert plan.path(goal, start).sites == way.sites[::-1]
            if way.sites[2:]:
                assert plan.path(way.sites[1], goal).sites == way.sites[1:]


def test_replan_leaves_other_links_alone():
    plan = compile_plan(load_topology("metro-ring"), seed=3)
    changed = plan.replan("a-b", loss=0.1)
    assert changed.links["c-d"] == plan.links["c-d"]
    assert changed.links["a-b"].forward.seed == plan.links["a-b"].forward.seed


@given(km=st.floats(0, 20_000), rate=st.integers(64, 10**14), scale=st.integers(1, 8))
def test_any_link_compiles_to_what_the_kernel_takes(km, rate, scale):
    link = pair(scale, km=km, rate=rate)
    assert link.rate_bps % 8 == 0
    assert rate / scale - 8 <= link.rate_bps <= rate / scale
    assert 1 <= link.forward.limit_packets < 2**31
    assert link.tcp.rmem_bytes[2] < 2**31
    assert bdp(link.rate_bps, link.rtt_ns) == link.bdp_bytes


def test_wire_time():
    assert wire_time_ns(9014, 25_000_000_000) == 2884
    assert wire_time_ns(64, 0) == 0


def test_record_is_plain_data():
    import json

    record = compile_plan(load_topology("pair")).record
    assert json.loads(json.dumps(record))["a-b"]["rtt_ns"] == 500_000
