"""Heartbeats over real datagrams: who is down, when, by whose silence, and who comes back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from cache_relay import Relay
from cache_sites import SECRET, World, content, make_layout, make_refs, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache import CentralDirectory, Entry
from geokv.cache.membership import Membership, MembershipSettings
from geokv.cache.membership.beat import Beat, beat_key, pack, sender, unpack
from geokv.cache.substrate.tcp.keyring import SecretRing
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, RecordError

LAYOUT = make_layout()
FAST = MembershipSettings(0.02, 3, 0.06)
QUICK = MembershipSettings(0.005, 3, 0.01)


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    ends = now_ns() + seconds * 1e9
    while not true():
        assert now_ns() < ends, "waited in vain"
        await asyncio.sleep(0.002)


@dataclass
class Node:
    """One site's membership, and what it has told."""

    name: str
    member: Membership
    port: int
    told: list[tuple[str, str, str, int]] = field(default_factory=list)


class Net:
    """Sites whose heartbeats pass a relay in each direction."""

    def __init__(self, how: MembershipSettings) -> None:
        self.how = how
        self.nodes: dict[str, Node] = {}
        self.relays: dict[tuple[str, str], Relay] = {}
        self.lives = 0

    def start(self, name: str, peers: list[str], port: int = 0) -> Node:
        self.lives += 1
        told: list[tuple[str, str, str, int]] = []
        member = Membership(
            name,
            self.lives,
            self.how,
            SecretRing(name, SECRET).key,
            lambda peer, cause, life: told.append(("down", peer, cause, life)),
            lambda peer, life: told.append(("up", peer, "", life)),
        )
        member.start("127.0.0.1", port or _free_port())
        assert member._sock is not None
        bound = int(member._sock.getsockname()[1])
        for peer in peers:
            relay = self.way(name, peer)
            self.way(peer, name).target_port = bound
            member.add(peer, "127.0.0.1", relay.port)
        node = Node(name, member, bound, told)
        self.nodes[name] = node
        return node

    def way(self, one: str, other: str) -> Relay:
        if (one, other) not in self.relays:
            self.relays[one, other] = Relay()
        return self.relays[one, other]

    def close(self) -> None:
        for node in self.nodes.values():
            node.member.close()
        for relay in self.relays.values():
            relay.close()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    made = Net(FAST)
    yield made
    made.close()


def pair(net: Net) -> tuple[Node, Node]:
    return net.start("a", ["b"]), net.start("b", ["a"])


async def test_a_silent_peer_is_down_in_time_and_back_when_it_answers(net: Net) -> None:
    a, b = pair(net)
    await until(lambda: bool(a.told and b.told))
    assert a.told == [("up", "b", "", 2)] and a.member.lives() == {"b": 2}
    cut_ns = now_ns()
    net.relays["a", "b"].cut = net.relays["b", "a"].cut = True
    await until(lambda: not a.member.up("b"))
    took_s = (now_ns() - cut_ns) / 1e9
    promised = a.member.stats()["peers"]["b"]["detection_ns"] / 1e9
    assert FAST.period_s * (FAST.misses - 1) * 0.9 < took_s < promised + 0.25
    assert a.told[1] == ("down", "b", "silent", 2) and not a.member.lives()
    net.relays["a", "b"].cut = net.relays["b", "a"].cut = False
    await until(lambda: a.member.up("b") and b.member.up("a"))
    assert a.told[2] == ("up", "b", "", 2) and a.member.epoch == 3


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
async def test_one_way_is_no_way_for_either_side(net: Net, way: tuple[str, str]) -> None:
    a, b = pair(net)
    await until(lambda: bool(a.told and b.told))
    net.relays[way].cut = True
    await until(lambda: not a.member.up("b") and not b.member.up("a"))
    net.relays[way].cut = False
    await until(lambda: a.member.up("b") and b.member.up("a"))


async def test_a_peer_that_is_down_costs_a_beat_each_cooldown(net: Net) -> None:
    a, b = pair(net)
    await until(lambda: bool(a.told and b.told))
    b.member.close()
    await until(lambda: not a.member.up("b"))
    passed = net.relays["a", "b"].passed
    before, began_ns = len(passed), now_ns()
    await asyncio.sleep(0.3)
    cooldowns = (now_ns() - began_ns) / 1e9 / FAST.cooldown_s
    assert 1 <= len(passed) - before <= cooldowns + 2


async def test_a_new_life_ends_the_old_one_at_once(net: Net) -> None:
    a, b = pair(net)
    await until(lambda: bool(a.told and b.told))
    old = list(net.relays["b", "a"].passed)
    b.member.close()
    net.start("b", ["a"], b.port)
    await until(lambda: ("up", "b", "", 3) in a.told)
    assert a.told[1:] in ([("down", "b", "new-life", 2), ("up", "b", "", 3)],) or (
        a.told[1] == ("down", "b", "silent", 2)
    )
    for data in old:  # what its old life said, said again
        net.relays["b", "a"].inject(data)
    await asyncio.sleep(0.05)
    assert a.member.lives() == {"b": 3} and a.member.counters["old-life"] >= len(old)


async def test_who_has_slept_blames_himself(net: Net) -> None:
    a, b = pair(net)
    await until(lambda: bool(a.told and b.told))
    import time

    time.sleep(0.5)
    await asyncio.sleep(0.03)
    assert a.member.counters["slept"] and a.told == [("up", "b", "", 2)]


async def test_what_is_to_be_said_comes_with_the_next_beat(net: Net) -> None:
    a, b = pair(net)
    heard: list[tuple[str, int, bytes, bool]] = []
    b.member.hear = lambda peer, life, said, sent: heard.append((peer, life, said, bool(sent)))
    a.member.say = lambda peer: f"for {peer}".encode()
    await until(lambda: len({answer for *_, answer in heard}) == 2)
    assert {(peer, life, said) for peer, life, said, _ in heard[-2:]} <= {
        ("a", 1, b"for b"),
        ("a", 1, b""),
    }
    heard.clear()
    a.member.beat_now()
    await asyncio.sleep(0.01)
    assert heard


async def test_strangers_and_echoes_of_old_beats_change_nothing(net: Net) -> None:
    a, b = pair(net)
    await until(lambda: bool(a.told and b.told))
    key = beat_key(SecretRing("b", SECRET).key("a"))
    refused, old = a.member.counters["refused"], a.member.counters["old"]
    to_a = net.relays["b", "a"]
    forged = pack(Beat(False, 99, 1, 0, 0), b"x" * 32, "b", "a")
    for data in (b"", b"\xff", b"\x01b", forged, pack(Beat(False, 99, 1, 0, 0), key, "c", "a")):
        to_a.inject(data)
    recorded = list(to_a.passed)
    for data in recorded:
        to_a.inject(data)
    # Its own words, thrown back at it.
    to_a.inject(pack(Beat(False, 1, 999, 0, 0), key, "a", "b"))
    await until(lambda: a.member.counters["refused"] >= refused + 6)
    assert a.member.counters["old"] >= old + len(recorded) >= 2
    assert a.member.lives() == {"b": 2} and len(a.told) == 1


def test_a_beat_is_for_one_receiver_and_fits_a_datagram() -> None:
    key = beat_key(b"k" * 32)
    beat = Beat(True, 7, 3, 9, 4, b"more")
    data = pack(beat, key, "berlin", "paris")
    assert sender(data) == "berlin" and unpack(data, key, "paris") == beat
    for bad in (data[:-1] + b"?", data[:5] + b"?" + data[6:], data[:-17]):
        with pytest.raises(RecordError):
            unpack(bad, key, "paris")
    with pytest.raises(RecordError):
        unpack(data, key, "rome")
    with pytest.raises(RecordError, match="fit"):
        pack(Beat(True, 7, 3, 9, 4, bytes(2000)), key, "berlin", "paris")
    with pytest.raises(ConfigError, match="cooldown"):
        MembershipSettings(1.0, 3, 0.5)
    with pytest.raises(ConfigError, match="misses"):
        MembershipSettings(1.0, 0, 1.0)


CUTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["cut", "heal", "restart"]),
    ),
    max_size=6,
)


@settings(max_examples=12, deadline=None)
@given(CUTS)
def test_every_view_comes_to_agree_with_the_links(steps: list[tuple[str, str, str]]) -> None:
    """The oracle: a peer is up if both directions are open and both ends live."""

    async def run() -> None:
        net = Net(QUICK)
        names = ["a", "b", "c"]
        for name in names:
            net.start(name, [other for other in names if other != name])

        def agrees() -> bool:
            return all(
                net.nodes[one].member.up(other)
                == (not net.relays[one, other].cut and not net.relays[other, one].cut)
                for one in names
                for other in names
                if one != other
            )

        try:
            for one, other, what in steps:
                if what == "restart":
                    old = net.nodes[one]
                    old.member.close()
                    net.start(one, [peer for peer in names if peer != one], old.port)
                elif one != other:
                    net.relays[one, other].cut = what == "cut"
                await until(agrees)
            for relay in net.relays.values():
                relay.cut = False
            lives = {name: net.nodes[name].member._incarnation for name in names}
            await until(
                lambda: all(
                    net.nodes[name].member.lives()
                    == {peer: life for peer, life in lives.items() if peer != name}
                    for name in names
                )
            )
            for name in names:  # whoever was told of an up was told of the down before it
                for peer in names:
                    ways = [way for way, who, *_ in net.nodes[name].told if who == peer]
                    assert all(x != y for x, y in pairwise(ways)), ways
        finally:
            net.close()

    asyncio.run(run())


# -- what a site makes of it ---------------------------------------------------


@pytest.fixture
async def relays() -> AsyncIterator[list[Relay]]:
    made = [Relay(), Relay()]
    yield made
    for relay in made:
        relay.close()


async def linked(
    world: World, relays: list[Relay], **b: Any
) -> tuple[Any, Any, Any, Callable[[bool], None]]:
    """Sites a and b, b's way to a through a proxy and both ways of beats through relays."""
    a, asker, proxy = await world.behind_proxy(LAYOUT, a={"membership": FAST}, b=b)

    def cut(really: bool) -> None:
        for relay in relays:
            relay.cut = really

    relays[0].target_port, relays[1].target_port = a.port, asker.port
    member = a.cache.membership
    member._members["b"].address = ("127.0.0.1", relays[1].port)
    asker.cache.membership._members["a"].address = ("127.0.0.1", relays[0].port)
    await until(lambda: bool(member.lives()) and bool(asker.cache.membership.lives()))
    return a, asker, proxy, cut


async def take(index: int, entry: Entry) -> None:
    return None


async def test_transfers_end_when_the_peer_is_down_and_not_at_their_deadline(
    world: World, relays: list[Relay]
) -> None:
    a, b, proxy, cut = await linked(world, relays, membership=FAST, transport={"streams": 1})
    refs = make_refs(LAYOUT, 8)
    await a.put(refs)
    proxy.arm("stall", 3 * LAYOUT.wire_bytes)  # as if it froze: connections stay open
    plan = await b.cache.lookup(refs, soon())
    fetching = asyncio.ensure_future(b.cache.fetch(plan, soon(20), take))
    await until(lambda: bool(proxy.fired))
    began_ns = now_ns()
    cut(True)
    outcome = await fetching
    assert (now_ns() - began_ns) / 1e9 < 2
    assert outcome.misses == {"unreachable": 1} and 0 < outcome.usable_chunks < 8
    assert [(e["peer"], e["cause"]) for e in b.ops("peer-down")] == [("a", "silent")]
    # Nobody waits for it any more, and nothing is asked of it.
    began_ns = now_ns()
    assert not (await b.cache.lookup(make_refs(LAYOUT, 8), soon())).remote_chunks
    with pytest.raises(CacheError, match="left alone"):
        await b.cache.transport.call("a", "anything", b"", soon())
    assert (now_ns() - began_ns) / 1e9 < 0.2
    proxy.disarm()
    cut(False)
    await until(lambda: bool(b.ops("peer-up")[1:]))
    await until(lambda: b.cache.transport.up("a"))
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    await proxy.close()


async def test_without_heartbeats_the_first_deadline_is_the_last_that_is_paid(
    world: World,
) -> None:
    a, b, proxy = await world.behind_proxy(LAYOUT, transport={"streams": 2})
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    proxy.frozen = True
    took = []
    for _ in range(4):
        began_ns = now_ns()
        await b.pull(refs, 0.4)
        took.append((now_ns() - began_ns) / 1e9)
    assert took[0] >= 0.39 and max(took[1:]) < 0.2, took
    assert [e["peer"] for e in b.ops("peer-down")] == ["a"]
    proxy.frozen = False
    # It is tried without anybody's request, and asked again once that has worked.
    await until(lambda: bool(b.ops("peer-up")), 10)
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    await proxy.close()


async def test_one_late_answer_among_others_does_not_make_a_peer_down(world: World) -> None:
    a, b, proxy = await world.behind_proxy(LAYOUT, transport={"streams": 2, "in_flight": 1})
    refs = make_refs(LAYOUT, 6)
    await a.put(refs)
    proxy.arm("slow", 5 * LAYOUT.wire_bytes)
    await b.pull(refs, 0.6)
    assert b.cache.transport.up("a") and not b.ops("peer-down")
    proxy.disarm()
    await proxy.close()


async def test_a_site_whose_datagram_port_is_taken_says_so(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
        with pytest.raises(CacheError, match="udp"):
            await world.site(
                "z", LAYOUT, port=port, membership=FAST, directory=CentralDirectory("z")
            )
