"""A directory that is told through a lossy wire comes to agree with what is there."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from cache_sites import Site, World, content, filling, make_layout, make_refs, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache import CentralDirectory, Directory, DiskTier
from geokv.cache.history import History
from geokv.cache.ownership import SequencedDirectory, SequencedTable
from geokv.cache.ownership.sequenced import Say, Told
from geokv.cache.substrate.transport import Caller
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, FetchError

LAYOUT = make_layout()
NOWHERE = History("", None, now_ns)
KEYS = [bytes([i]) * 16 for i in range(12)]


def new_table(epoch: int = 1) -> SequencedTable:
    return SequencedTable(epoch, NOWHERE)


# -- the table -----------------------------------------------------------------


def test_a_gap_stops_belief_until_all_is_told_anew() -> None:
    table = new_table()
    assert table.event("a", 1, 1, "publish", KEYS[:3])
    assert table.event("a", 1, 1, "publish", KEYS[:3])  # said twice
    assert not table.event("a", 1, 3, "withdraw", KEYS[:1])  # 2 was lost
    assert table.locate(KEYS[:1]) == [("a",)]  # an old hint, and nothing newer is believed
    assert not table.event("a", 1, 2, "publish", KEYS[3:4])  # it was only late
    assert not table.knows("a", 1)
    table.resync("a", 1, 4, KEYS[1:4])
    assert table.knows("a", 1) and table.keys_of("a") == KEYS[1:4]
    assert table.event("a", 1, 5, "withdraw", KEYS[1:2])
    table.resync("a", 1, 4, KEYS)  # an old one, overtaken
    assert table.keys_of("a") == KEYS[2:4]
    assert table.counters["gap"] == 1 and table.counters["old-events"] == 2
    table.check_integrity()


def test_a_comparison_sees_every_difference_and_nothing_else() -> None:
    table = new_table()
    table.event("a", 1, 1, "publish", KEYS[:3])
    total = int.from_bytes(bytes(x ^ y ^ z for x, y, z in zip(*KEYS[:3], strict=True)), "big")
    assert table.compare("a", 1, 2, 3, total)
    assert table.compare("a", 1, 1, 0, 0)  # said before, heard after
    for seq, count, other in ((3, 3, total), (2, 2, total), (2, 3, total ^ 1)):
        twin = table.copied(1)
        assert not twin.compare("a", 1, seq, count, other)
        assert not twin.knows("a", 1)
        twin.resync("a", 1, seq, KEYS[:2])
        assert twin.knows("a", 1)


def test_a_site_that_is_down_is_forgotten_and_must_tell_all_anew() -> None:
    table = new_table()
    for life in range(1, 11):  # joins and leaves
        table.event("b", 1, life, "publish", KEYS[:1])
        table.event("a", life, 1, "publish", KEYS)
        assert table.forget("a") == len(KEYS)
        assert len(table) == 1 and table.locate(KEYS[:1]) == [("b",)]
        assert not table.event("a", life, 2, "withdraw", KEYS[:1])
    with pytest.raises(CacheError, match="is over"):
        table.event("a", 9, 2, "publish", KEYS)
    table.resync("a", 10, 3, KEYS[:2])
    assert table.keys_of("a") == KEYS[:2]
    table.check_integrity()


# -- both ends, over a courier that loses, repeats and reorders -----------------


class Courier:
    """Stands for the way to the table's site."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.site = ""
        self.handlers: dict[str, Any] = {}
        self.down = False

    async def call(self, site: str, method: str, body: bytes, deadline_ns: int) -> bytes:
        if self.down:
            raise FetchError("unreachable", "down")
        answer: bytes = await self.handlers[method](Caller(self.site, self.incarnation), body)
        return answer


class Pair:
    """A table at a, and site b that has chunks and tells of them through a bad wire."""

    def __init__(self, period_s: float = 60.0) -> None:
        self.rng = random.Random(1)
        self.held: dict[bytes, None] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.notes: list[dict[str, Any]] = []
        self.host = SequencedDirectory("a", period_s)
        self.courier = Courier(1)
        self.courier.site = "b"
        self.host.attach(History("a", self.notes.append, now_ns), self.spawn, lambda key: False)
        self.courier.handlers = dict(self.host.bind("a", Courier(1)))  # type: ignore[arg-type]
        self.client = SequencedDirectory("a", period_s)
        self.client.attach(NOWHERE, self.spawn, self.held.__contains__)
        self.client.bind("b", self.courier)  # type: ignore[arg-type]
        self.wire: Counter[str] = Counter()
        self.waiting: list[Say] = []
        self.next = "ok"
        self.client.deliver = self.deliver

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def deliver(self, say: Say, deadline_ns: int) -> Told | None:
        how, self.next = self.next, "ok"
        self.wire[how] += 1
        if how == "lose":
            return None
        if how == "late":
            self.waiting.append(say)
            return None
        told = await self.client._say(say, deadline_ns)
        if how == "twice":
            told = await self.client._say(say, deadline_ns)
        return told

    async def settle(self) -> None:
        while self.tasks:
            await asyncio.gather(*self.tasks)

    def close(self) -> None:
        self.host.close()
        self.client.close()

    @property
    def known(self) -> list[bytes]:
        assert self.host.table is not None
        return sorted(self.host.table.keys_of("b"))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["store", "evict", "late-arrives", "restart", "stale", "keep", "down", "up", "forget"]
        ),
        st.integers(0, len(KEYS) - 1),
        st.sampled_from(["ok", "ok", "lose", "twice", "late"]),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_the_wire_does_one_comparison_later_the_table_is_right(
    steps: list[tuple[str, int, str]],
) -> None:
    async def run() -> None:
        pair = Pair()
        await pair.client.join(soon())
        for step, number, how in steps:
            key = KEYS[number]
            pair.next = how
            try:
                if step == "store" and key not in pair.held:
                    pair.held[key] = None
                    await pair.client.publish([key], soon())
                elif step == "evict" and key in pair.held:
                    del pair.held[key]
                    await pair.client.withdraw([key], soon())
                elif step == "late-arrives" and pair.waiting:
                    await pair.client._say(pair.waiting.pop(0), soon())
                elif step == "restart":
                    pair.host.start_table("empty")
                elif step == "keep":
                    pair.host.keep_table()
                elif step == "stale" and pair.host._kept is not None:
                    pair.host.start_table("stale")
                elif step in ("down", "up"):
                    pair.courier.down = step == "down"
                elif step == "forget":
                    pair.host.peer_down("b")
            except CacheError:
                assert pair.courier.down
            await pair.settle()
            assert pair.host.table is not None
            pair.host.table.check_integrity()
        pair.courier.down, pair.next = False, "ok"
        pair.client.peer_up("a")
        await pair.settle()
        # What was found is put right by telling all, within the same round.
        assert pair.known == sorted(pair.held)
        for say in pair.waiting:  # and nothing that comes later can undo it
            await pair.client._say(say, soon())
        await pair.settle()
        assert pair.known == sorted(pair.held)
        pair.close()

    asyncio.run(run())


async def test_a_gap_is_found_by_the_next_event_and_said_in_the_history() -> None:
    pair = Pair()
    await pair.client.join(soon())
    for number, how in enumerate(["ok", "lose", "ok"]):
        pair.held[KEYS[number]] = None
        pair.next = how
        assert await pair.client.publish([KEYS[number]], soon()) == number + 1
    await pair.settle()
    assert pair.known == KEYS[:3]
    told = [(e["op"], e["of"], e["expected"], e["got"]) for e in pair.notes]
    assert told == [("gap", "b", 2, 3), ("resync", "b", 2, 4)]
    pair.close()


async def test_who_only_asks_learns_that_the_table_began_anew() -> None:
    pair = Pair()
    pair.held.update(dict.fromkeys(KEYS))
    await pair.client.publish(KEYS, soon())
    pair.host.stop_table()
    with pytest.raises(CacheError, match="is down"):
        await pair.client.locate(KEYS[:1], soon())
    pair.host.start_table("empty")
    assert await pair.client.locate(KEYS[:1], soon()) == [()]
    await pair.settle()
    assert await pair.client.locate(KEYS[:1], soon()) == [("b",)]
    assert pair.known == KEYS
    pair.close()


async def test_who_only_asks_learns_that_the_table_is_an_old_copy() -> None:
    pair = Pair()
    pair.held.update(dict.fromkeys(KEYS))
    await pair.client.publish(KEYS[:2], soon())
    pair.host.keep_table()
    await pair.client.publish(KEYS[2:], soon())
    pair.host.start_table("stale")
    assert await pair.client.locate(KEYS[1:3], soon()) == [("b",), ()]
    await pair.settle()
    assert pair.known == KEYS
    pair.close()


async def test_many_keys_are_told_in_parts_that_count_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("geokv.cache.ownership.sequenced._MOST_KEYS", 5)
    pair = Pair()
    pair.held.update(dict.fromkeys(KEYS))
    await pair.client.publish(KEYS, soon())
    sizes = []

    async def watched(say: Say, deadline_ns: int) -> Told:
        told = await said(say, deadline_ns)
        sizes.append((len(say.keys), len(pair.known)))
        return told

    said, pair.client._say = pair.client._say, watched  # type: ignore[method-assign]
    pair.host.start_table("empty")
    pair.client._resync_soon()
    await pair.settle()
    assert sizes == [(5, 0), (5, 0), (2, 12)]
    pair.close()


def test_a_pause_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="anti_entropy"):
        SequencedDirectory("a", 0.0)


# -- whole sites ---------------------------------------------------------------


async def sites(world: World, period_s: float = 0.1) -> tuple[Site, Site]:
    a = await world.site("a", LAYOUT, directory=SequencedDirectory("a", period_s))
    peers = {"a": ("127.0.0.1", a.port)}
    b = await world.site("b", LAYOUT, directory=SequencedDirectory("a", period_s), peers=peers)
    a.cache.add_peer("b", "127.0.0.1", b.port)
    await a.cache.connect(soon())
    await b.cache.connect(soon())
    return a, b


def named(site: Site, whom: str) -> set[bytes]:
    entries = site.cache.directory.entries()
    assert entries is not None
    return {key for key, who in entries.items() if whom in who}


async def until(true: Any, seconds: float = 5.0) -> None:
    ends = now_ns() + seconds * 1e9
    while not true():
        assert now_ns() < ends, "waited in vain"
        await asyncio.sleep(0.005)


async def test_sites_share_through_it_and_number_what_they_say(world: World) -> None:
    a, b = await sites(world, 60.0)
    refs = make_refs(LAYOUT, 4)
    await a.put(refs)
    _, got = await b.pull(refs)
    assert got == [content(ref, LAYOUT) for ref in refs]
    await b.cache.quiesce(soon())
    await b.cache.drop("dram", [refs[0].key])
    assert [e["seq"] for e in b.ops("publish") + b.ops("withdraw")] == [1, 1, 1, 1, 2]
    assert named(a, "b") == {ref.key for ref in refs[1:]}


async def test_what_left_in_silence_is_withdrawn_by_the_next_comparison(world: World) -> None:
    a, b = await sites(world)
    refs = make_refs(LAYOUT, 4)
    await b.put(refs)
    b.cache.tier.drop([refs[0].key])  # nobody has been told
    await until(lambda: named(a, "b") == {ref.key for ref in refs[1:]})
    assert a.cache.directory.table is not None  # type: ignore[attr-defined]
    a.cache.directory.table._remove("b", [refs[1].key])  # type: ignore[attr-defined]
    await until(lambda: named(a, "b") == {ref.key for ref in refs[1:]})
    assert [e["why"] for e in a.ops("gap")] == ["digest"]


async def test_a_table_that_comes_back_empty_or_old_is_told_all(world: World) -> None:
    a, b = await sites(world)
    refs = make_refs(LAYOUT, 6)
    directory = a.cache.directory
    assert isinstance(directory, SequencedDirectory)
    await b.put(refs[:2])
    directory.keep_table()
    await b.put(refs[2:])
    await a.put(refs[:1])
    directory.stop_table()
    await b.cache.drop("dram", [refs[0].key])  # cannot be told
    assert b.cache.misses["directory"]
    for how in ("stale", "empty"):
        directory.start_table(how)  # type: ignore[arg-type]
        expected = {ref.key for ref in refs[1:]}
        await until(lambda expected=expected: named(a, "b") == expected)
        await until(lambda: named(a, "a") == {refs[0].key})


async def left_on_disk(world: World, folder: Path, directory: Directory) -> tuple[Any, set[bytes]]:
    """A site that was here before, as it starts again; it has connected to nobody."""
    refs = make_refs(LAYOUT, 3)
    cache: dict[str, Any] = {"spare": 4, "write": "write-through"}

    def disk() -> DiskTier:
        return DiskTier(LAYOUT, 64 * LAYOUT.wire_bytes, folder)

    before = await world.site("b", LAYOUT, disk=disk(), directory=CentralDirectory("b"), **cache)
    for ref in refs:
        assert await before.cache.store(ref, filling(ref, LAYOUT))
    await before.cache.quiesce(soon())
    await before.cache.close()
    world.sites.remove(before)
    after = await world.site("b", LAYOUT, disk=disk(), directory=directory, **cache)
    return after, {ref.key for ref in refs}


async def test_what_an_earlier_life_left_is_told_without_being_asked(
    world: World, tmp_path: Path
) -> None:
    a = await world.site("a", LAYOUT, directory=SequencedDirectory("a", 0.05))
    b, keys = await left_on_disk(world, tmp_path, SequencedDirectory("a", 0.05))
    b.cache.add_peer("a", "127.0.0.1", a.port)
    await until(lambda: named(a, "b") == keys)


async def test_a_dead_peer_keeps_nobody_from_joining(world: World, tmp_path: Path) -> None:
    a = await world.site("a", LAYOUT)
    b, keys = await left_on_disk(world, tmp_path, CentralDirectory("a"))
    b.cache.add_peer("dead", "127.0.0.1", 9)
    b.cache.add_peer("a", "127.0.0.1", a.port)
    with pytest.raises(FetchError, match="dead"):
        await b.cache.connect(soon())
    assert named(a, "b") == keys
