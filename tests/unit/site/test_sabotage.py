"""Each planted weakness really is one, and one whose target has gone says so.

Where the notes of two sites are enough for it, what is asserted is that the very checker fails
that guards against it, and that it does not without the sabotage.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from site_processes import ACME, CHUNK_TOKENS, OTHER, SiteRoom, free_port, prompt, wait_for

from geokv.cache.keys import ChunkRef
from geokv.cache.lifetime.forgetting import PurgeSettings
from geokv.cache.locality import Entry
from geokv.cache.membership import Breaker, MembershipSettings
from geokv.cache.ownership.sequenced_table import SequencedTable
from geokv.cache.plan import Outcome
from geokv.cache.substrate.transport import Ended, Transfer
from geokv.clock import now_ns
from geokv.errors import ConfigError, FetchError, RunError
from geokv.measure.checker import CHECKERS, History
from geokv.site.front import HttpServer
from geokv.site.history import HistoryFile
from geokv.site.process import build_worker
from geokv.site.sabotage import known_sabotages, plant
from geokv.site.sabotage._swap import swap
from geokv.site.settings import DiskSettings, Peer, SiteSettings
from geokv.site.tenants import Roster
from geokv.site.worker import Worker
from geokv.units import NS_PER_S

BEATS = MembershipSettings(0.02, 3, 0.1)
Honest = pytest.mark.parametrize("honest", [True, False], ids=["honest", "sabotaged"])


def soon(seconds: float = 3.0) -> int:
    return now_ns() + round(seconds * NS_PER_S)


class Two:
    """Workers of sites a (directory) and b in this process, with connections between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.room = SiteRoom()
        ports = free_port(), free_port()
        self.base = {
            name: replace(
                self.room.settings(name, kv_port=port, audit=True, content="synthetic"),
                compute="charged",
                history_path=str(folder / f"history-{name}.jsonl"),
                peers={other: Peer("127.0.0.1", there)},
                directory_site="a",
                anti_entropy_s=0.05,
            )
            for name, port, other, there in (
                ("a", ports[0], "b", ports[1]),
                ("b", ports[1], "a", ports[0]),
            )
        }
        self.workers: dict[str, Worker] = {}
        self.files: list[HistoryFile] = []

    def __getitem__(self, name: str) -> Worker:
        return self.workers[name]

    async def start(self, sabotage: str = "", only: str = "ab", **changes: Any) -> None:
        for name in only:
            self._build(replace(self.base[name], **changes), sabotage)
        for name in only:
            settings, cache = self.base[name], self[name].cache
            there = settings.peers.items() if len(only) > 1 else ()
            peers = {other: (peer.host, peer.port) for other, peer in there}
            await cache.start(settings.host, settings.kv_port, peers)
        for name in only:
            await self[name].cache.connect(soon())
            self.note(name, "life", phase="serving", incarnation=self.base[name].incarnation)

    def _build(self, settings: SiteSettings, sabotage: str) -> None:
        history = HistoryFile(Path(settings.history_path), at_once=True)
        worker = build_worker(settings, history)
        if sabotage:
            plant(sabotage, worker)
        self.workers[settings.name] = worker
        self.files.append(history)

    async def end(self, name: str) -> None:
        await self.workers.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self.workers):
            await self.end(name)
        for one in self.files:
            one.close()
        self.room.__exit__(None)

    def note(self, site: str, op: str, **fields: Any) -> None:
        with Path(self.base[site].history_path).open("a") as stream:
            stream.write(json.dumps({"t_ns": now_ns(), "site": site, "op": op, **fields}) + "\n")

    def history(self) -> History:
        lines = []
        for settings in self.base.values():
            path = Path(settings.history_path)
            lines += path.read_text().splitlines() if path.exists() else []
        return History(sorted(map(json.loads, lines), key=lambda event: int(event["t_ns"])))

    def holds(self, line: str) -> bool | None:
        return CHECKERS[line](self.history()).ok

    # -- doing ---------------------------------------------------------------------

    def refs(self, chunks: int, seed: int = 1, tenant: Any = ACME) -> list[ChunkRef]:
        tokens = prompt(chunks * CHUNK_TOKENS, seed)
        return next(iter(self.workers.values())).chunks(tenant, tokens)

    async def put(self, site: str, refs: list[ChunkRef]) -> None:
        for ref in refs:
            assert await self[site].cache.store(ref, filling(ref), publish=False)
        assert await self[site].cache.publish([ref.key for ref in refs])

    async def pull(self, site: str, refs: list[ChunkRef], seconds: float = 3.0) -> Outcome:
        async def take(index: int, entry: Entry) -> None:
            await asyncio.sleep(0)

        cache, until = self[site].cache, soon(seconds)
        return await cache.fetch(await cache.lookup(refs, until, "r"), until, take)

    async def settle(self) -> None:
        for worker in self.workers.values():
            await worker.settle(soon())

    async def converges(self) -> bool | None:
        """Note the books as at the end of a drill, then ask the checker."""
        await self.settle()
        self.note("a", "drill-begin", publish="all")
        for name, worker in self.workers.items():
            self.note(name, "held", dram=[key.hex() for key in worker.cache.tiers.keys("dram")])
        entries = self["a"].cache.directory.entries() or {}
        self.note("a", "directory", keys={key.hex(): list(at) for key, at in entries.items()})
        return self.holds("directory-converges")


def filling(ref: ChunkRef) -> Callable[[memoryview], None]:
    def fill(view: memoryview) -> None:
        view[:] = random.Random(ref.key).randbytes(len(view))

    return fill


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    from geokv.cache import record
    from geokv.cache.locality import TierStack, disk
    from geokv.cache.substrate.tcp.get_request import GetRequest

    # What a sabotage does to its process is taken back at the end of a test.
    for owner, name in (
        (Breaker, "trip"),
        (Breaker, "hold"),
        (SequencedTable, "event"),
        (GetRequest, "_compared"),
        (record, "verify"),
        (disk, "read_file"),
        (TierStack, "__contains__"),
        (HttpServer, "__init__"),
        (Roster, "whose"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    made = Two(tmp_path)
    yield made
    await made.close()


def test_what_is_planted_must_find_its_place() -> None:
    class Part:
        here = 1

    part = Part()
    assert swap(part, "here", 2) == 1 and part.here == 2
    with pytest.raises(RunError, match="Part has no 'gone'"):
        swap(part, "gone", 3)
    with pytest.raises(RunError, match="Part has no 'gone'"):
        swap(Part, "gone", 3)
    assert "-swap" not in known_sabotages() and len(known_sabotages()) >= 19
    docs = (Path(__file__).parents[3] / "docs/scenarios.md").read_text()
    assert [name for name in known_sabotages() if f"| {name} |" not in docs] == []
    with pytest.raises(ConfigError, match="unknown 'no-such'"):
        plant("no-such", None)  # type: ignore[arg-type]


async def test_no_sabotage_is_empty(two: Two, tmp_path: Path) -> None:
    """Every one changes some part of a whole site, of which something is noticed here."""
    for name in known_sabotages():
        made = Two(tmp_path)
        made._build(replace(made.base["b"], **_WHOLE, disk=_disk(tmp_path / name)), "")
        before = _parts(made["b"])
        plant(name, made["b"])
        assert _parts(made["b"]) != before, name
        await made.close()


_WHOLE: dict[str, Any] = {"membership": BEATS, "purge": PurgeSettings("a", 0.2, None)}


def _disk(folder: Path) -> DiskSettings:
    return DiskSettings(str(folder), 1 << 30, "lru", 8, False, 0.05, 6.5e9, 3.5e9, 85e-6, 20e-6)


def _parts(worker: Worker) -> list[int]:
    from geokv.cache import record
    from geokv.cache.locality import disk
    from geokv.cache.substrate.tcp.get_request import GetRequest

    cache = worker.cache
    owners: list[Any] = [
        HttpServer,
        Roster,
        worker,
        worker.engine.tree,
        cache,
        cache._fetcher,
        cache.tiers,
        disk,
    ]
    owners += [cache.tier, cache.source, cache.directory, cache.membership]
    assert cache.tiers.disk is not None
    owners += [cache._forgetting, cache.tiers.disk.outage, cache.tiers._promoter, record]
    owners += [Breaker, SequencedTable, GetRequest]
    return [id(part) for owner in owners for part in vars(owner).values()]


@Honest
async def test_readable_before_whole(two: Two, honest: bool) -> None:
    await two.start("" if honest else "readable-before-whole")
    refs = two.refs(3)
    await two.put("a", refs)
    assert (await two.pull("b", refs)).usable_chunks == 3
    await two.settle()
    assert two.holds("half-written") is honest


@Honest
async def test_ignore_incarnation(two: Two, honest: bool) -> None:
    sabotage = "" if honest else "ignore-incarnation"
    two.base["a"] = replace(two.base["a"], incarnation=2)
    await two.start(sabotage)
    refs = two.refs(2)
    await two.put("a", refs)
    assert (await two.pull("b", refs)).usable_chunks == 2
    assert two.holds("stale") is honest


@Honest
async def test_never_marked_down(two: Two, honest: bool) -> None:
    await two.start("" if honest else "never-marked-down", membership=BEATS)
    refs = two.refs(1)
    await two.put("a", refs)
    assert (await two.pull("b", refs)).usable_chunks == 1
    await two["b"].cache.drop("dram", tell=False)
    cache = two["b"].cache
    await two.end("a")
    await asyncio.sleep(0.3)
    assert cache.transport.up("a") is not honest
    assert two.history().has("peer-down") is honest


@Honest
async def test_no_anti_entropy(two: Two, honest: bool) -> None:
    await two.start("" if honest else "no-anti-entropy")
    way = two["b"].cache.directory

    async def lost(*_: Any) -> None:
        return None

    way.deliver = lost  # type: ignore[attr-defined]
    await two.put("b", two.refs(1))
    del way.deliver  # type: ignore[attr-defined]
    await asyncio.sleep(0.2)
    assert await two.converges() is honest


@Honest
async def test_no_republish(two: Two, honest: bool) -> None:
    await two.start("" if honest else "no-republish")
    await two.put("b", two.refs(1))
    two["a"].cache.directory.start_table("empty")  # type: ignore[attr-defined]
    await asyncio.sleep(0.2)
    assert await two.converges() is honest


@Honest
async def test_no_gap_detection(two: Two, honest: bool) -> None:
    await two.start("" if honest else "no-gap-detection", anti_entropy_s=60.0)
    way = two["b"].cache.directory
    deliver = way.deliver  # type: ignore[attr-defined]

    async def lost(*_: Any) -> None:
        return None

    way.deliver = lost  # type: ignore[attr-defined]
    await two.put("b", two.refs(1))
    way.deliver = deliver  # type: ignore[attr-defined]
    await two.put("b", two.refs(1, seed=2))
    assert await two.converges() is honest


@Honest
async def test_no_pins(two: Two, honest: bool) -> None:
    few = 4 * 128 * 32 * 1024
    await two.start("" if honest else "no-pins", dram_bytes=few)
    refs, others = two.refs(1), two.refs(4, seed=2)
    await two.put("a", refs)
    source = two["a"].cache.source
    served = source.open(refs[0].key, ACME.name, "b")
    assert not isinstance(served, str)
    sent = bytes(served.pieces[0])
    for ref in others:
        # Meanwhile there is room for three more.
        await two["a"].cache.store(ref, filling(ref), publish=False)
    assert (bytes(served.pieces[0]) == sent) is honest
    served.release()
    source.closed(refs[0].key, "b", Ended("", 1, 1, served.generation))
    assert two.holds("doubly-owned") is honest


@Honest
async def test_ignore_lease(two: Two, honest: bool) -> None:
    more = {"membership": BEATS, "purge": PurgeSettings("a", 0.1, None)}
    await two.start("" if honest else "ignore-lease", **more)
    await asyncio.sleep(0.1)
    refs = two.refs(1)
    await two.put("b", refs)
    cache = two["b"].cache
    assert (await two.pull("b", refs)).usable_chunks == 1
    await two.end("a")
    await asyncio.sleep(0.2)
    outcome = await two.pull("b", refs, 0.3)
    assert (outcome.usable_chunks, cache.fenced) == (0 if honest else 1, True)
    assert two.holds("stale") is honest


@Honest
async def test_leak_reservation(two: Two, honest: bool) -> None:
    await two.start("" if honest else "leak-reservation")
    tier = two["b"].cache.tier
    slot = tier.reserve(b"k" * 16)
    waiting = tier.pending(b"k" * 16)
    tier.abort(slot, "timeout")
    assert waiting is not None and await waiting == "timeout"
    assert tier.pending(b"k" * 16) is None
    assert tier.stats()["reserved"] == (0 if honest else 1)
    two["b"].check_integrity()


@Honest
async def test_purge_only_here(two: Two, honest: bool) -> None:
    more = {"membership": BEATS, "purge": PurgeSettings("a", 0.2, None)}
    await two.start("" if honest else "purge-only-here", **more)
    await asyncio.sleep(0.1)
    refs = two.refs(2)
    await two.put("a", refs)
    await two.put("b", two.refs(2, seed=2))
    two.note("a", "purge", phase="asked", purge_id="p", tenant=ACME.name)
    receipt = await two["b"].cache.purge(ACME.name, "p", soon())
    two.note("a", "purge", phase="acked", purge_id="p", tenant=ACME.name)
    assert receipt.by == "confirmed"
    await asyncio.sleep(0.1)
    assert two["b"].cache.tiers.keys() == []
    assert (two["a"].cache.tiers.keys() == []) is honest
    held = [key.hex() for key in two["a"].cache.tiers.keys("all")]
    two.note("a", "held", dram=held)
    assert (two.holds("served-after-purge") is False) is not honest


@Honest
async def test_no_salt(two: Two, honest: bool) -> None:
    await two.start("" if honest else "no-salt")
    mine, theirs = (two.refs(2, tenant=tenant) for tenant in (ACME, OTHER))
    assert ([ref.key for ref in mine] == [ref.key for ref in theirs]) is not honest
    await two.put("a", mine)
    await two.put("b", theirs)
    assert two.holds("foreign") is honest


@Honest
async def test_double_owner(two: Two, honest: bool) -> None:
    await two.start("" if honest else "double-owner")
    refs = two.refs(4)
    await two.put("b", refs)
    await two.pull("b", refs)
    await two["b"].cache.drop("dram")
    await two.put("b", two.refs(4, seed=2))
    assert two.holds("doubly-owned") is honest


@Honest
async def test_stale_generation(two: Two, honest: bool) -> None:
    await two.start("" if honest else "stale-generation")
    refs = two.refs(2)
    await two.put("b", refs)
    assert (await two.pull("b", refs)).usable_chunks == 2
    assert two.holds("stale") is honest


@Honest
@pytest.mark.parametrize("evicted", [True, False], ids=["storm", "calm"])
async def test_remembered_place(two: Two, honest: bool, evicted: bool) -> None:
    """As long as nothing that was read has to go, it does no harm."""
    few = 4 * 128 * 32 * 1024
    await two.start("" if honest else "remembered-place", dram_bytes=few)
    refs = two.refs(2)
    await two.put("b", refs)
    assert (await two.pull("b", refs)).usable_chunks == 2
    if evicted:
        await two.put("b", two.refs(4, seed=2))
    found = await two.pull("b", refs)
    assert found.usable_chunks == (0 if honest and evicted else 2)
    assert two.holds("corrupt") is (honest or not evicted)


@Honest
async def test_half_kept(two: Two, honest: bool) -> None:
    """The sender goes away when a first piece of its second chunk has come."""
    await two.start("" if honest else "half-kept")
    refs = two.refs(2)
    await two.put("a", refs)
    transport = two["b"].cache.transport
    submit = transport.submit

    def cut_off(site: str, ref: ChunkRef, *args: Any, **more: Any) -> Transfer:
        transfer = submit(site, ref, *args, **more)
        if ref is not refs[1]:
            return transfer
        broken = replace(transfer, done=asyncio.get_running_loop().create_future())
        broken.first_byte_ns = now_ns()
        transfer.done.add_done_callback(
            lambda _: broken.done.set_exception(FetchError("unreachable", "it has gone"))
        )
        return broken

    transport.submit = cut_off  # type: ignore[method-assign]
    outcome = await two.pull("b", refs)
    assert outcome.usable_chunks == (1 if honest else 2)
    await two.settle()
    assert two.holds("half-written") is honest


@Honest
def test_key_checked_once(own_room: SiteRoom, honest: bool) -> None:
    """From outside, by a new connection, the door is shut either way."""
    sabotage = None if honest else "key-checked-once"
    site = own_room.start(own_room.settings("a", audit=True, sabotage=sabotage))
    key = {"Authorization": f"Bearer {ACME.api_key}"}

    def models(http: httpx.Client) -> int:
        return http.get(f"{site.url}/v1/models", headers=key).status_code

    with httpx.Client(trust_env=False) as inside:
        assert models(inside) == 200
        site.post("/revoke", tenant=ACME.name)
        assert models(inside) == (401 if honest else 200)
        with httpx.Client(trust_env=False) as outside:
            assert models(outside) == 401


@Honest
async def test_skip_verify(two: Two, honest: bool) -> None:
    await two.start("" if honest else "skip-verify")
    refs = two.refs(2)
    await two.put("a", refs)
    two["a"].cache.tier.exposed(refs[0].key)[0] ^= 1
    await two.put("b", two.refs(1, seed=2))
    two["b"].cache.tier.exposed(two.refs(1, seed=2)[0].key)[0] ^= 1
    remote = await two.pull("b", refs)
    local = await two.pull("b", two.refs(1, seed=2))
    assert (remote.usable_chunks, local.usable_chunks) == ((0, 0) if honest else (2, 1))
    assert remote.misses["corrupt"] == local.misses["corrupt"] == (1 if honest else 0)


async def test_skip_verify_of_the_disk(two: Two, tmp_path: Path) -> None:
    await two.start("skip-verify", disk=_disk(tmp_path / "disk"), only="a", write="write-through")
    refs = two.refs(1)
    await two.put("a", refs)
    await two.settle()
    tiers = two["a"].cache.tiers
    assert tiers.disk is not None
    tiers.disk.flip_bit(refs[0].key, 3)
    await two["a"].cache.drop("dram")
    assert (await two.pull("a", refs)).disk_chunks == 1


async def test_fetch_waits_forever(two: Two) -> None:
    await two.start("fetch-waits-forever")
    refs = two.refs(1)
    await two.put("a", refs)
    plan = await two["b"].cache.lookup(refs, soon())
    await two.end("a")

    async def take(index: int, entry: Entry) -> None:
        raise FetchError("absent", "nothing can come")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await two["b"].cache.fetch(plan, soon(0.1), take)


def test_store_error_kills(own_room: SiteRoom) -> None:
    """The whole process, as nothing less can be killed."""
    folder = own_room.folder / "disk"
    settings = own_room.settings(
        "a", disk=_disk(folder), write="write-through", audit=True, sabotage="store-error-kills"
    )
    site = own_room.start(settings)
    site.killed = True
    (folder / "v1").rename(folder / "elsewhere")
    (folder / "v1").write_text("no folder")
    asyncio.run(site.ask("r", prompt(2 * CHUNK_TOKENS)))
    wait_for("its end", lambda: not site.process.is_alive())
    assert site.process.exitcode == -signal.SIGKILL
