"""Kills a process that writes to a disk tier at a random byte, again and again.

python tests/unit/cache/disk_writer.py FOLDER [ROUNDS] [SEED]

Each round forks a child that opens the folder, writes and drops chunks, and is ended by
SIGKILL in the middle of a write, before a rename or after it. The parent then opens the
folder: what the child had finished must be there, everything that is there must be
whole, and nothing else may be left. Prints a JSON line of what happened.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

from cache_sites import content, make_layout, make_refs

from geokv.cache.locality import DiskTier, disk_file
from geokv.cache.record import checksums, make_header

LAYOUT = make_layout(layers=1, groups=1, chunk_tokens=16, wire_bytes_per_token=128)
REFS = make_refs(LAYOUT, 24)
BY_KEY = {ref.key: ref for ref in REFS}
SLOTS = 16
# One entry is some 2.4 kB, and a rename counts as one byte.
MOST_BYTES = 12_000


def new_tier(folder: Path) -> DiskTier:
    return DiskTier(LAYOUT, SLOTS * LAYOUT.wire_bytes, folder)


async def put(tier: DiskTier, key: bytes) -> None:
    payload = memoryview(content(BY_KEY[key], LAYOUT))
    slot = tier.reserve(key)
    header = make_header(BY_KEY[key], LAYOUT, checksums(LAYOUT, payload), slot.generation, 1)
    await tier.write(slot, header, payload)


class Killer:
    """Lets so many bytes through and then ends the process, as ``kill -9`` does."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._replace = os.replace
        disk_file._write = self.write  # type: ignore[assignment]
        disk_file.os = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def write(self, descriptor: int, piece: memoryview) -> int:
        if len(piece) > self._budget:
            os.write(descriptor, piece[: self._budget])
            os.kill(os.getpid(), signal.SIGKILL)
        self._budget -= len(piece)
        return os.write(descriptor, piece)

    def replace(self, source: Path, target: Path) -> None:
        after = bool(self._budget % 2)
        if self._budget < 600 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        self._replace(source, target)
        if self._budget < 600:
            os.kill(os.getpid(), signal.SIGKILL)


def child(folder: Path, seed: int, done: int) -> None:
    """Write until killed; tells ``done`` (+ or - and the key) what it has finished."""
    rng = random.Random(seed)
    tier = new_tier(folder)

    def gone(key: bytes, place: int) -> None:
        os.write(done, b"-" + key)

    tier.on_evict = gone
    Killer(rng.randrange(MOST_BYTES))

    async def work() -> None:
        while True:
            key = rng.choice(REFS).key
            if key not in tier:
                await put(tier, key)
                os.write(done, b"+" + key)
            elif rng.random() < 0.3:
                os.write(done, b"-" + key)
                tier.drop([key])

    asyncio.run(work())


def one_round(folder: Path, seed: int, before: set[bytes]) -> tuple[set[bytes], Counter[str]]:
    """Returns what is on the disk now, and counters."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            child(folder, seed, writing)
        finally:
            os._exit(3)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read()
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    expected, doubtful = set(before), set()
    for at in range(0, len(told), 17):
        sign, key = told[at : at + 1], told[at + 1 : at + 17]
        if sign == b"+":
            expected.add(key)
            doubtful.discard(key)
        else:  # told before it was removed
            expected.discard(key)
            doubtful.add(key)
    tier = new_tier(folder)
    found = set(tier.keys())
    assert expected <= found, f"lost {len(expected - found)} finished entries"
    # At most the one that was being finished when the process died.
    extra = found - expected - doubtful
    assert len(extra) <= 1, f"{len(extra)} entries that nobody finished"
    tier.check_integrity(deep=True)
    assert not tier.causes["corrupt"], "a torn entry under its own name"
    names = [path.stem for path in (folder / "v1").rglob("*") if path.is_file()]
    assert sorted(names) == sorted(key.hex() for key in found)
    asyncio.run(read_all(tier))
    counters = Counter(partial=tier.causes["partial"], extra=len(extra), found=len(found))
    tier.close()
    return found, counters


async def read_all(tier: DiskTier) -> None:
    memory = memoryview(bytearray(LAYOUT.real_bytes))
    for key in list(tier.keys()):
        entry = tier.get(key)
        assert entry is not None
        with entry:
            header = await tier.read(entry, memory)
        assert header.tokens == BY_KEY[key].tokens
        assert bytes(memory) == content(BY_KEY[key], LAYOUT)


def main(folder: Path, rounds: int, seed: int) -> None:
    here: set[bytes] = set()
    total: Counter[str] = Counter()
    for number in range(rounds):
        here, counters = one_round(folder, seed * 1_000_003 + number, here)
        total.update(counters)
    print(json.dumps({"rounds": rounds, **total}))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        Path(arguments[0]),
        int(arguments[1]) if len(arguments) > 1 else 100,
        int(arguments[2]) if len(arguments) > 2 else 0,
    )
