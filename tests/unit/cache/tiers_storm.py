"""Many requests, two sites, little room and a disk that lies, fills up and fails.

python tests/unit/cache/tiers_storm.py [ROUNDS] [SEED]

Whatever happens: what is handed over is right, every call ends, and when all is quiet
the books balance, nothing is pinned and the directory names nobody in vain.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cache_sites import Site, World, content, filling, make_layout, make_refs, soon

from geokv.cache import ChunkRef, DiskCost, DiskTier, Entry
from geokv.cache.locality import WRITE_POLICIES, disk_file
from geokv.cache.ownership import CentralDirectory
from geokv.cache.shared import SharedCache

LAYOUT = make_layout(layers=2, groups=2, chunk_tokens=16, wire_bytes_per_token=512)
FAMILIES = [make_refs(LAYOUT, 6, seed=seed) for seed in range(8)]
EVERY = {ref.key: ref for family in FAMILIES for ref in family}


@contextmanager
def lying_disk(rng: random.Random) -> Iterator[Counter[str]]:
    """Some writes fail (some after a part), for a while all do; some bits flip."""
    told: Counter[str] = Counter()
    failing = 0

    def write(descriptor: int, piece: memoryview) -> int:
        nonlocal failing
        if failing or rng.random() < 0.01:
            failing = failing - 1 if failing else rng.randrange(8)
            told["refused"] += 1
            if len(piece) > 1:
                os.write(descriptor, piece[: rng.randrange(len(piece))])
            raise OSError(errno.ENOSPC, "No space left on device")
        if len(piece) > 100 and rng.random() < 0.03:
            told["rotten"] += 1
            rotten = bytearray(piece)
            rotten[rng.randrange(len(rotten))] ^= 1 << rng.randrange(8)
            return os.write(descriptor, rotten)
        return os.write(descriptor, piece[: rng.randint(1, len(piece))])

    real = disk_file._write
    disk_file._write = write
    try:
        yield told
    finally:
        disk_file._write = real


async def ask(cache: SharedCache, refs: list[ChunkRef], rng: random.Random) -> int:
    """One request: look up, fetch, check, store the rest, publish; chunks it found."""

    async def take(index: int, entry: Entry) -> None:
        assert bytes(entry.view) == content(refs[index], LAYOUT), "wrong bytes"
        await asyncio.sleep(rng.random() * 0.001)
        assert bytes(entry.view) == content(refs[index], LAYOUT), "they changed while pinned"

    plan = await cache.lookup(refs, soon())
    await asyncio.sleep(rng.random() * 0.002)
    outcome = await cache.fetch(plan, soon(), take)
    for ref in refs[outcome.usable_chunks :]:
        await cache.store(ref, filling(ref, LAYOUT), publish=False)
    await cache.publish([ref.key for ref in refs])
    return outcome.usable_chunks


async def client(cache: SharedCache, rng: random.Random, told: Counter[str]) -> None:
    for _ in range(rng.randint(3, 8)):
        refs = rng.choice(FAMILIES)[: rng.randint(1, 6)]
        what = rng.random()
        if what < 0.06:
            told["drops"] += 1
            keys = None if what < 0.01 else [rng.choice(list(EVERY))]
            await cache.drop(rng.choice(["dram", "disk", "all"]), keys)
        elif what < 0.1:
            rival = [ChunkRef(ref.key, ref.parent, ref.tokens, "rival") for ref in refs]
            plan = await cache.lookup(rival, soon())

            async def never(index: int, entry: Entry) -> None:
                raise AssertionError("another tenant's chunk")

            await cache.fetch(plan, soon(), never)
        elif what < 0.2:
            asking = asyncio.ensure_future(ask(cache, refs, rng))
            await asyncio.sleep(rng.random() * 0.003)
            told["cancelled"] += asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert asking.cancelled() or asking.exception() is None, asking.exception()
        else:
            told["chunks found"] += await ask(cache, refs, rng)


def truth(world: World, settled: CentralDirectory) -> None:
    """The directory names nobody who has it not (who was cancelled never told it)."""
    table = settled.table
    assert table is not None
    for key in EVERY:
        (says,) = table.locate([key])
        holders = {site.cache.site for site in world.sites if key in site.cache.tiers}
        assert set(says) <= holders, f"{key.hex()}: the directory says {says}, it is {holders}"


async def given_back(*sites: Site) -> None:
    """What was lent to a fetch that was cancelled comes back when its connection has said so."""
    async with asyncio.timeout(15):  # a lease is 10 s
        while any(site.cache.leases for site in sites):
            await asyncio.sleep(0.005)


async def one_round(folder: Path, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    world = World()
    directory = CentralDirectory("a")
    write = rng.choice(WRITE_POLICIES)
    cost = DiskCost(1e9, 1e9, rng.choice([0.0, 0.0005]), rng.choice([0.0, 0.002]))

    def disk(name: str) -> DiskTier:
        chunks = rng.randint(4, 20)
        policy = rng.choice(["lru", "s3fifo", "lfu", "fifo"])
        threaded = rng.random() < 0.3
        return DiskTier(
            LAYOUT,
            chunks * LAYOUT.wire_bytes,
            folder / name,
            policy,
            cost=cost,
            threaded=threaded,
            retry_s=0.002,
        )

    room = {"chunks": rng.randint(3, 10), "spare": rng.randint(1, 4), "write": write}
    a = await world.site("a", LAYOUT, directory=directory, disk=disk("a"), **room)
    b = await world.site("b", LAYOUT, peers={"a": ("127.0.0.1", a.port)}, disk=disk("b"), **room)
    a.cache.add_peer("b", "127.0.0.1", b.port)
    with lying_disk(rng) as told:
        await a.cache.connect(soon())
        await b.cache.connect(soon())
        await asyncio.gather(
            *(client(site.cache, random.Random(rng.random()), told) for site in (a, b) * 3)
        )
        for _ in range(3):  # what one finishes may give the other something to do
            await a.cache.quiesce(soon())
            await b.cache.quiesce(soon())
        await given_back(a, b)
    for site in (a, b):
        site.cache.check_integrity()
        stats = site.cache.tier.stats()
        assert stats["reserved"] == stats["leaving"] == stats["pinned"] == 0, stats
        assert site.cache.stats()["disk"]["pinned"] == 0
        told["promoted"] += site.cache.stats()["disk"]["promotions"].get("ok", 0)
        told["corrupt"] += site.cache.stats()["disk"]["causes"].get("corrupt", 0)
    truth(world, directory)
    for site in (a, b):
        await site.cache.close()
    told["rounds"] += 1
    return told


def storm(rounds: int, seed: int) -> Counter[str]:
    total: Counter[str] = Counter()
    logging.getLogger("geokv").setLevel(logging.ERROR)
    try:
        for number in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    total.update(asyncio.run(one_round(Path(folder), seed + number)))
                except BaseException as error:
                    error.add_note(f"seed {seed + number}")
                    raise
    finally:
        logging.getLogger("geokv").setLevel(logging.NOTSET)
    return total


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    print(dict(storm(arguments[0] if arguments else 50, arguments[1] if arguments[1:] else 0)))
