"""Directories: what they say, fencing of dead lives, and what a site does without one."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence

import pytest
from cache_sites import World, content, make_layout, make_refs, soon

from geokv.cache import CentralDirectory, CentralTable, LocalDirectory
from geokv.errors import CacheError, FetchError


def test_a_newer_life_forgets_the_older_one_and_fences_it() -> None:
    table = CentralTable()
    table.join("b", 1)
    table.publish("b", 1, [b"x", b"y"])
    table.publish("c", 5, [b"x"])
    assert table.locate([b"x", b"y", b"z"]) == [("b", "c"), ("b",), ()]
    assert table.join("b", 2) == 2
    assert table.locate([b"x", b"y"]) == [("c",), ()]
    for late in (table.publish, table.withdraw):
        with pytest.raises(CacheError, match="is over"):
            late("b", 1, [b"x"])
    assert table.locate([b"x"]) == [("c",)]
    assert table.counters["fenced"] == 2


def test_the_table_against_a_brute_force_oracle() -> None:
    rng = random.Random(5)
    table, pairs, lives = CentralTable(), set(), dict.fromkeys("abc", 1)
    for _ in range(600):
        site = rng.choice("abc")
        keys = [bytes([rng.randrange(8)]) for _ in range(rng.randrange(4))]
        op = rng.randrange(10)
        if op == 0:
            lives[site] += 1
            table.join(site, lives[site])
            pairs = {pair for pair in pairs if pair[1] != site}
        elif op < 6:
            table.publish(site, lives[site], keys)
            pairs |= {(key, site) for key in keys}
        else:
            table.withdraw(site, lives[site], keys)
            pairs -= {(key, site) for key in keys}
        table.check_integrity()
        assert len(table) == len(pairs)
        for key in map(bytes, ([i] for i in range(8))):
            assert set(table.locate([key])[0]) == {s for k, s in pairs if k == key}
    for _ in range(10):
        for site in "abc":
            lives[site] += 1
            table.join(site, lives[site])
    assert len(table) == 0 and not table._sites


async def test_a_local_directory_shares_nothing(world: World) -> None:
    layout = make_layout()
    a, b = await world.pair(layout, directory=LocalDirectory())
    refs = make_refs(layout, 2)
    await a.put(refs)
    outcome, got = await b.pull(refs)
    assert not got and outcome.usable_chunks == 0
    assert b.cache.misses == {"absent": 1}
    own, got = await a.pull(refs)
    assert got == [content(ref, layout) for ref in refs] and own.local_chunks == 2


async def test_drop_withdraws_first_and_fetching_replicates(world: World) -> None:
    layout = make_layout()
    a, b = await world.pair(layout)
    refs = make_refs(layout, 4)
    await a.put(refs)
    table = a.cache.directory.table  # type: ignore[attr-defined]
    await b.pull(refs)
    await b.cache.quiesce(soon())
    assert table.locate([refs[0].key]) == [("a", "b")]
    assert await b.cache.drop(keys=[refs[0].key]) == 1
    assert table.locate([refs[0].key, refs[1].key]) == [("a",), ("a", "b")]
    withdraw, here = a.cache.directory.withdraw, []

    async def spy(keys: Sequence[bytes], deadline_ns: int) -> None:
        here.extend(key in a.cache.tier for key in keys)
        await withdraw(keys, deadline_ns)

    a.cache.directory.withdraw = spy  # type: ignore[method-assign]
    assert await a.cache.drop() == 4
    assert here == [True] * 4  # the directory knew before anything was gone
    assert table.locate([ref.key for ref in refs]) == [(), ("b",), ("b",), ("b",)]
    assert len(a.ops("withdraw")) == len(a.ops("drop")) == 4


async def test_a_restarted_site_is_not_credited_with_its_old_chunks(world: World) -> None:
    layout = make_layout()
    a, b = await world.pair(layout)
    refs = make_refs(layout, 3)
    await b.put(refs)
    table = a.cache.directory.table  # type: ignore[attr-defined]
    assert len(table) == 3
    await b.cache.close()
    again = await world.site("b", layout, port=b.port, peers={"a": ("127.0.0.1", a.port)})
    await again.cache.connect(soon())
    assert len(table) == 0
    plan = await a.cache.lookup(refs, soon())
    assert not plan.refs
    await again.put(refs)
    outcome, got = await a.pull(refs)
    assert got == [content(ref, layout) for ref in refs]
    assert outcome.sites == {"b": 3}


async def test_absent_although_the_directory_said_present(world: World) -> None:
    layout = make_layout()
    a, b = await world.pair(layout)
    refs = make_refs(layout, 4)
    await a.put(refs)
    a.cache.tier.drop([refs[2].key])  # behind the directory's back
    outcome, got = await b.pull(refs)
    assert got == [content(ref, layout) for ref in refs[:2]]
    assert (outcome.usable_chunks, outcome.misses) == (2, {"absent": 1})
    await a.cache.quiesce(soon())
    await b.cache.quiesce(soon())
    table = a.cache.directory.table  # type: ignore[attr-defined]
    assert "a" not in table.locate([refs[2].key])[0]  # it learned better


async def test_a_directory_that_does_not_answer_is_a_counted_miss(world: World) -> None:
    layout = make_layout()
    with socket.socket() as deaf:  # accepts connections (backlog) and says nothing
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        peers = {"d": ("127.0.0.1", deaf.getsockname()[1])}
        b = await world.site("b", layout, directory=CentralDirectory("d"), peers=peers)
        refs = make_refs(layout, 2)
        assert await b.cache.store(refs[0], lambda view: None, publish=False)
        started = time.monotonic()
        plan = await b.cache.lookup(refs, soon(0.2))
        assert time.monotonic() - started < 1.0
        assert (plan.local_chunks, plan.remote_chunks) == (1, 0)
        assert plan.misses == {"directory": 1} and b.cache.misses == {"directory": 1}
        with pytest.raises(FetchError):
            await b.cache.connect(soon(0.1))
