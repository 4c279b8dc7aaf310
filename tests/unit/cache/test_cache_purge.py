"""A purged tenant is gone everywhere within its bound, whatever the links do, and stays gone."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cache_relay import Relay
from cache_sites import TENANT, Site, World, content, filling, make_layout, soon
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache import CentralDirectory, ChunkRef, DiskTier, Entry, chunk_refs, root_key
from geokv.cache.lifetime.forgetting import PurgeSettings
from geokv.cache.lifetime.purge_log import Purged, PurgeLog
from geokv.cache.membership import MembershipSettings
from geokv.cache.record import make_header, parse, verify
from geokv.clock import now_ns
from geokv.errors import CacheError, ConfigError, FetchError, RecordError

LAYOUT = make_layout()
FAST = MembershipSettings(0.02, 3, 0.05)
BOUND_S = 0.4


def refs_of(chunks: int, seed: int = 0, tenant: str = TENANT, epoch: int = 0) -> list[ChunkRef]:
    tokens = [(seed * 7919 + i) % 32000 for i in range(chunks * LAYOUT.chunk_tokens)]
    root = root_key("tiny", tenant.encode(), epoch=epoch)
    return chunk_refs(root, tokens, LAYOUT.chunk_tokens, LAYOUT.block_tokens, tenant, epoch)


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    ends = now_ns() + seconds * 1e9
    while not true():
        assert now_ns() < ends, "waited in vain"
        await asyncio.sleep(0.002)


class Trio:
    """Sites a (authority), b and c; beats between any two of them pass relays."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.sites: dict[str, Site] = {}
        self.relays: dict[tuple[str, str], Relay] = {}
        self.lives = 0

    async def start(self, name: str, port: int = 0, **more: Any) -> Site:
        self.lives += 1
        log = self.folder / "purges" if name == "a" else None
        site = await self.world.site(
            name,
            LAYOUT,
            port=port,
            directory=CentralDirectory("a"),
            transport={"incarnation": self.lives},
            membership=FAST,
            purge=PurgeSettings("a", BOUND_S, log),
            audit=True,
            **more,
        )
        self.sites[name] = site
        return site

    async def link(self) -> None:
        """Make everybody known to everybody, and wait until nobody is fenced."""
        for one, here in self.sites.items():
            for other, there in self.sites.items():
                if one != other and other not in here.cache._neighbours.names:
                    here.cache.add_peer(other, "127.0.0.1", there.port)
                    self._pass(one, other)
        for name in sorted(self.sites):
            await self.sites[name].cache.connect(soon())
        await until(lambda: not any(site.cache.fenced for site in self.sites.values()))

    def _pass(self, one: str, other: str) -> None:
        if (one, other) not in self.relays:
            self.relays[one, other] = Relay()
        relay = self.relays[one, other]
        relay.target_port = self.sites[other].port
        member = self.sites[one].cache.membership
        assert member is not None
        member._members[other].address = ("127.0.0.1", relay.port)

    def cut(self, one: str, other: str, really: bool = True) -> None:
        """No beats in either direction (calls follow: the peer is down)."""
        self.relays[one, other].cut = self.relays[other, one].cut = really

    async def end(self, name: str) -> int:
        site = self.sites.pop(name)
        await site.cache.close()
        self.world.sites.remove(site)
        return site.port

    async def share(self, refs: list[ChunkRef]) -> None:
        """Computed at a, then fetched by the others."""
        await self.sites["a"].put(refs)
        for name in ("b", "c"):
            outcome, got = await self.sites[name].pull(refs)
            assert got == [content(ref, LAYOUT) for ref in refs], (name, outcome)
            await self.sites[name].cache.quiesce(soon())


@pytest.fixture
async def trio(world: World, tmp_path: Path) -> AsyncIterator[Trio]:
    made = Trio(world, tmp_path)
    for name in "abc":
        await made.start(name)
    await made.link()
    yield made
    for relay in made.relays.values():
        relay.close()


def gone(site: Site, refs: list[ChunkRef]) -> bool:
    return not any(ref.key in site.cache.tiers for ref in refs)


# -- purges --------------------------------------------------------------------


async def test_a_purge_is_confirmed_by_all_and_everything_is_gone(trio: Trio) -> None:
    mine, other = refs_of(4), refs_of(3, tenant="other")
    await trio.share(mine)
    await trio.share(other)
    began_ns = now_ns()
    receipt = await trio.sites["b"].cache.purge(TENANT, "p-1", soon())
    assert receipt.by == "confirmed" and (now_ns() - began_ns) / 1e9 < BOUND_S + 0.3
    for site in trio.sites.values():
        assert gone(site, mine) and not gone(site, other)
        assert site.cache.epoch(TENANT) == receipt.seq and site.cache.epoch("other") == 0
        phases = [(e["phase"], e["scope"], e["purge_id"]) for e in site.ops("purge")]
        assert phases == [("heard", TENANT, "p-1"), ("done", TENANT, "p-1")]
        await site.cache.quiesce(soon())
        outcome, got = await site.pull(mine)
        assert not got and outcome.reason == ""  # the lookup said it
        assert site.ops("miss")[-1]["cause"] == "purged"
        assert len((await site.pull(other))[1]) == 3
    directory = trio.sites["a"].cache.directory.entries()
    assert directory is not None and set(directory) == {ref.key for ref in other}
    # Asked again with the same id it is the same purge; a new one is another.
    again = await trio.sites["c"].cache.purge(TENANT, "p-1", soon())
    assert again.seq == receipt.seq
    assert (await trio.sites["a"].cache.purge(TENANT, "p-2", soon())).seq > receipt.seq
    # What is computed from now on is shared as ever.
    new = refs_of(4, epoch=trio.sites["a"].cache.epoch(TENANT))
    await until(lambda: all(s.cache.epoch(TENANT) == new[0].epoch for s in trio.sites.values()))
    assert {ref.key for ref in new}.isdisjoint({ref.key for ref in mine})
    await trio.share(new)


async def test_a_site_that_cannot_be_reached_is_fenced_within_the_bound(trio: Trio) -> None:
    refs, other = refs_of(4), refs_of(2, tenant="other")
    await trio.share(refs)
    await trio.share(other)
    c = trio.sites["c"]
    trio.cut("a", "c")
    receipt = await trio.sites["b"].cache.purge(TENANT, "p-1", soon())
    assert receipt.by == "bound"  # as the authority has told b
    assert c.cache.fenced and not gone(c, refs)
    for asked in (refs, other):
        _, got = await c.pull(asked)
        assert not got
    assert {e["cause"] for e in c.ops("miss")} == {"fenced"}
    # b may still reach c: it is given nothing either.
    trio.sites["b"].cache.tier.drop([ref.key for ref in other])
    trio.sites["a"].cache.tier.drop([ref.key for ref in other])
    _, got = await trio.sites["b"].pull(other)
    assert not got and "fenced" in {e["cause"] for e in c.ops("serve")}
    trio.cut("a", "c", False)
    await until(lambda: not c.cache.fenced)
    assert gone(c, refs) and not gone(c, other)
    assert [e["op"] for e in c.events if e["op"].endswith("fenced")][-2:] == ["fenced", "unfenced"]
    assert len((await c.pull(other))[1]) == 2


async def test_the_bound_is_kept_by_the_clock_of_who_is_cut_off(trio: Trio) -> None:
    """Whatever is used after the acknowledgement was not computed before the purge."""
    refs = refs_of(3)
    await trio.share(refs)
    c = trio.sites["c"]
    used: list[int] = []

    async def keep_asking() -> None:
        while True:
            _, got = await c.pull(refs, 0.2)
            if got:
                used.append(now_ns())
            await asyncio.sleep(0.002)

    asking = asyncio.ensure_future(keep_asking())
    await asyncio.sleep(0.05)
    trio.cut("a", "c")
    asked_ns = now_ns()
    receipt = await trio.sites["a"].cache.purge(TENANT, "p-1", soon())
    acked_ns = now_ns()
    assert receipt.by == "bound" and receipt.took_ns >= BOUND_S * 1e9
    await asyncio.sleep(0.2)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert used and asked_ns < used[-1] < acked_ns  # it went on, and ended in time


async def test_word_that_was_long_on_its_way_keeps_nobody_going(trio: Trio) -> None:
    """What the authority said before a purge may be heard long after it."""
    refs = refs_of(3)
    await trio.share(refs)
    c = trio.sites["c"]
    trio.relays["a", "c"].delay_s = 0.25
    await asyncio.sleep(0.6)
    await until(lambda: not c.cache.fenced and bool(c.cache.transport.up("a")))
    trio.cut("a", "c")  # what is on its way comes all the same
    receipt = await trio.sites["a"].cache.purge(TENANT, "p-1", soon())
    assert receipt.by == "bound" and c.cache.fenced and not gone(c, refs)


async def test_late_things_do_not_bring_it_back(trio: Trio) -> None:
    a, b, c = (trio.sites[name] for name in "abc")
    refs = refs_of(6)
    await a.put(refs[:3])
    # A fetch is in flight, a chunk is being computed, and one is pinned by a reader.
    held = asyncio.Event()
    going: list[int] = []

    async def slow(index: int, entry: Entry) -> None:
        going.append(index)
        await held.wait()

    plan = await b.cache.lookup(refs[:3], soon())
    fetching = asyncio.ensure_future(b.cache.fetch(plan, soon(), slow))
    await until(lambda: bool(going))
    slot = c.cache.tier.reserve(refs[5].key)
    await a.cache.purge(TENANT, "p-1", soon())
    held.set()
    outcome = await fetching
    assert outcome.usable_chunks == 1 and outcome.misses == {"purged": 1}
    filling(refs[5], LAYOUT)(slot.view)
    header = make_header(refs[5], LAYOUT, [], slot.generation, 1)
    with pytest.raises(FetchError, match="purged"):
        c.cache.tiers.stored(slot, header)
    assert not await c.cache.store(refs[4], filling(refs[4], LAYOUT))
    assert c.cache.misses["purged"]
    assert gone(b, refs) and gone(c, refs)
    # Someone who has not heard of it pushes.
    new = refs_of(1, seed=5, epoch=a.cache.epoch(TENANT))[0]
    assert await b.cache.store(new, filling(new, LAYOUT))
    c.cache._forgetting._purger._log._epochs[TENANT] = new.epoch + 1  # c is ahead  # type: ignore[union-attr]
    (error,) = (await b.cache.push(["c"], new, soon())).values()
    assert error is not None and error.cause == "purged" and gone(c, [new])


async def test_what_is_being_sent_is_cut_off(trio: Trio) -> None:
    a, b = trio.sites["a"], trio.sites["b"]
    refs = refs_of(2)
    await a.put(refs)
    served = a.cache._source.open(refs[0].key, TENANT, "b")
    assert not isinstance(served, str)
    ended: list[str] = []
    served.revoke = ended.append
    other = refs_of(1, tenant="other")
    await a.put(other)
    kept = a.cache._source.open(other[0].key, "other", "b")
    assert not isinstance(kept, str)
    kept.revoke = ended.append
    await b.cache.purge(TENANT, "p-1", soon())
    assert ended == ["purged"]
    served.release()
    kept.release()
    assert a.cache.leases == 0


async def test_a_restart_forgets_no_purge(trio: Trio) -> None:
    refs = refs_of(3)
    await trio.share(refs)
    receipt = await trio.sites["a"].cache.purge(TENANT, "p-1", soon())
    port = await trio.end("a")
    a = await trio.start("a", port)
    await trio.link()
    assert a.cache.epoch(TENANT) == receipt.seq
    assert not await a.cache.store(refs[0], filling(refs[0], LAYOUT))
    later = await a.cache.purge("other", "p-2", soon())
    assert later.seq > receipt.seq
    # Its medium is lost with it: it asks the others back.
    port = await trio.end("a")
    os.unlink(trio.folder / "purges")
    a = await trio.start("a", port)
    await trio.link()
    await until(lambda: a.cache.epoch(TENANT) == receipt.seq)
    assert (await a.cache.purge("third", "p-3", soon())).seq > later.seq


async def test_a_site_that_comes_back_with_an_old_disk_does_not_use_it(
    trio: Trio, tmp_path: Path
) -> None:
    refs = refs_of(3)
    port = await trio.end("c")
    folder = tmp_path / "disk"

    def disk() -> DiskTier:
        return DiskTier(LAYOUT, 64 * LAYOUT.wire_bytes, folder)

    c = await trio.start("c", port, disk=disk(), spare=4, write="write-through")
    await trio.link()
    for ref in refs:
        assert await c.cache.store(ref, filling(ref, LAYOUT))
    await c.cache.quiesce(soon())
    port = await trio.end("c")
    await trio.sites["a"].cache.purge(TENANT, "p-1", soon())  # c is not there to hear it
    c = await trio.start("c", port, disk=disk(), spare=4)
    assert c.cache.fenced and len(c.cache.tiers.keys("disk")) == 3
    assert not (await c.pull(refs))[1]
    await trio.link()
    assert gone(c, refs) and not list(folder.rglob("*.kv*"))
    assert not (await c.pull(refs))[1]


async def test_what_cannot_be_promised_is_refused(world: World, tmp_path: Path) -> None:
    lone = await world.site("a", LAYOUT)
    with pytest.raises(ConfigError, match="purge"):
        await lone.cache.purge(TENANT, "p", soon())
    with pytest.raises(ConfigError, match="heartbeats"):
        await world.site("b", LAYOUT, purge=PurgeSettings("b", 1.0))
    with pytest.raises(ConfigError, match="bound"):
        await world.site("b", LAYOUT, membership=FAST, purge=PurgeSettings("b", 0.05))
    trio = Trio(world, tmp_path)
    b = await trio.start("b")
    b.cache.add_peer("a", "127.0.0.1", 9)
    with pytest.raises(CacheError):  # the authority is not there: nothing was purged
        await b.cache.purge(TENANT, "p", soon(0.3))
    a = await trio.start("a")
    a.cache.add_peer("b", "127.0.0.1", 9)
    with pytest.raises(CacheError, match="written down"):
        await a.cache.purge(TENANT, "p", soon(0.05))
    for relay in trio.relays.values():
        relay.close()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_nothing_purged_is_used_after_its_acknowledgement(
    world: World, tmp_path: Path, seed: int
) -> None:
    """The oracle: the keys that had been computed before a purge, and when it was acked."""
    rng = random.Random(seed)
    trio = Trio(world, tmp_path)
    for name in "abc":
        await trio.start(name)
    await trio.link()
    made: dict[int, list[ChunkRef]] = {0: []}
    acked: list[tuple[int, int]] = []
    events: list[list[dict[str, Any]]] = [site.events for site in trio.sites.values()]
    for step in range(40):
        name = rng.choice("abc")
        site = trio.sites[name]
        what = rng.choice(["put"] * 3 + ["pull"] * 5 + ["heal"] * 2 + ["cut", "purge", "restart"])
        epoch = site.cache.epoch(TENANT)
        if what == "put":
            refs = refs_of(2, seed=step, epoch=epoch)
            made.setdefault(epoch, []).extend(refs)
            for ref in refs:
                await site.cache.store(ref, filling(ref, LAYOUT), publish=False)
            await site.cache.publish([ref.key for ref in refs], soon(0.2))
        elif what == "pull" and made.get(epoch):
            ref = rng.choice(made[epoch])
            await site.pull([one for one in made[epoch] if one.tokens == ref.tokens], 0.3)
        elif what in ("cut", "heal"):
            one, other = rng.sample("abc", 2)
            trio.cut(one, other, what == "cut")
        elif what == "purge":
            try:
                receipt = await site.cache.purge(TENANT, f"p-{step}", soon(2.0))
            except CacheError:
                continue  # cut off from the authority: nothing was purged
            acked.append((receipt.seq, now_ns()))
        elif what == "restart" and name != "a":
            port = await trio.end(name)
            events.append((await trio.start(name, port)).events)
            for one, other in list(trio.relays):
                if one == name:
                    trio.sites[one].cache.add_peer(other, "127.0.0.1", trio.sites[other].port)
                    trio._pass(one, other)
    old = {ref.key.hex(): epoch for epoch, refs in made.items() for ref in refs}
    used = 0
    for event in (event for one in events for event in one):
        if event["op"] == "use" or (event["op"] == "serve" and not event["cause"]):
            used += 1
            for seq, at_ns in acked:
                assert old[event["key"]] >= seq or event["t_ns"] < at_ns, event
    assert used
    for one, other in trio.relays:
        trio.cut(one, other, False)
    await until(lambda: not any(site.cache.fenced for site in trio.sites.values()))
    newest = max((seq for seq, _ in acked), default=0)
    for site in trio.sites.values():
        assert site.cache.epoch(TENANT) >= newest
        assert gone(site, [ref for epoch, refs in made.items() if epoch < newest for ref in refs])
    for relay in trio.relays.values():
        relay.close()


# -- the log and the header ----------------------------------------------------

ENTRIES = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(["acme", "ürbân", "x\ny"])), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(steps=ENTRIES, cut=st.integers(0, 400))
def test_a_log_cut_anywhere_keeps_every_whole_line(
    steps: list[tuple[int, str]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "purges"
    log, seq, sizes, taken = PurgeLog(path), 0, [0], []
    for number, (step, tenant) in enumerate(steps):
        seq += step
        entry = Purged(seq, tenant, f"p-{number}")
        assert log.add([entry]) == [entry] and log.add([entry]) == []
        sizes.append(path.stat().st_size)
        taken.append(entry)
    assert PurgeLog(path).after(0) == taken
    raw = path.read_bytes()
    path.write_bytes(raw[: min(cut, len(raw))])
    whole = max(i for i, size in enumerate(sizes) if size <= min(cut, len(raw)))
    again = PurgeLog(path)
    assert again.after(0) == taken[:whole] and again.head == (taken[whole - 1].seq if whole else 0)
    more = Purged(seq + 1, "acme", "more")
    again.add([more])
    assert PurgeLog(path).after(0) == [*taken[:whole], more]


def test_a_purge_that_cannot_be_written_down_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PurgeLog(tmp_path / "purges")
    log.add([Purged(1, "acme", "p-1")])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CacheError, match="nothing was purged"):
            log.add([Purged(2, "acme", "p-2")])
    assert log.head == 1 and PurgeLog(tmp_path / "purges").head == 1
    log.add([Purged(3, "acme", "p-3")])
    assert PurgeLog(tmp_path / "purges").head == 3


def test_an_epoch_is_in_keys_and_headers_and_0_is_as_it_was() -> None:
    old, new = refs_of(1)[0], refs_of(1, epoch=9)[0]
    assert old.key != new.key and old.tokens == new.tokens
    sums = [bytes(16)] * LAYOUT.groups
    plain = make_header(old, LAYOUT, sums, 1, 1)
    marked = make_header(new, LAYOUT, sums, 1, 1)
    assert len(marked.pack()) == len(plain.pack()) + 8
    for header in (plain, marked):
        assert parse(header.pack()) == header
    assert verify(marked, new, LAYOUT) is None
    assert verify(marked, ChunkRef(new.key, new.parent, new.tokens, TENANT, 8), LAYOUT) == "purged"
    raw = bytearray(marked.pack())
    raw[108 : 108 + 8] = bytes(8)
    with pytest.raises(RecordError):
        parse(bytes(raw))
