"""A disk that hangs: files are FIFOs that nobody opens at the other end."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_sites import World, filling, make_layout, make_refs, soon

from geokv.cache.locality import DiskTier
from geokv.cache.locality.disk_index import chunk_path, lock_folder
from geokv.cache.locality.disk_threads import DiskThreads
from geokv.errors import CacheError, ConfigError

LAYOUT = make_layout()
PATIENCE_S = 0.2


class Fifos:
    """Files that are FIFOs; ``release`` lets go whoever hangs on them."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def put(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        self._made.append(path)

    def release(self) -> None:
        # Open at both ends: whoever waits for the other end has it, and then finds nothing.
        ends = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in self._made if path.exists()]
        time.sleep(0.05)
        for end in ends:
            os.close(end)
        until = time.monotonic() + 5
        while disk_threads():
            assert time.monotonic() < until
            time.sleep(0.01)


def disk_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("geokv-disk")]


@pytest.fixture
def fifos() -> Iterator[Fifos]:
    made = Fifos()
    yield made
    made.release()


@pytest.mark.parametrize("hangs", ["write", "read"])
async def test_a_cache_closes_though_its_disk_hangs(
    world: World, tmp_path: Path, fifos: Fifos, caplog: pytest.LogCaptureFixture, hangs: str
) -> None:
    disk = DiskTier(LAYOUT, 64 * LAYOUT.wire_bytes, tmp_path, threaded=True)
    a = await world.site("a", LAYOUT, disk=disk, chunks=4, spare=4)
    refs = make_refs(LAYOUT, 8)
    if hangs == "write":
        fifos.put(chunk_path(tmp_path, refs[0].key).with_suffix(".partial"))
    for ref in refs:
        assert await a.cache.store(ref, filling(ref, LAYOUT), publish=False)
        await asyncio.sleep(0)
    if hangs == "read":
        await a.cache.quiesce(soon())
        fifos.put(chunk_path(tmp_path, refs[0].key))
        pulling = asyncio.ensure_future(a.pull(refs[:1]))
        await asyncio.sleep(0.1)
        assert not pulling.done()
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING):
        await a.cache.close(PATIENCE_S)
    assert PATIENCE_S < time.monotonic() - begun < 10 * PATIENCE_S
    assert disk.hanging == a.cache.stats()["disk"]["hanging"] == 1
    assert sum("hangs" in record.message for record in caplog.records) == 1
    with pytest.raises(ConfigError):
        lock_folder(tmp_path)  # what hangs may still write there
    a.cache.check_integrity()
    stats = a.cache.tier.stats()
    assert stats["reserved"] == stats["leaving"] == stats["pinned"] == 0
    if hangs == "read":
        with pytest.raises(CacheError, match="hangs"):
            a.cache.check_integrity(deep=True)
    world.sites.remove(a)


async def test_a_disk_that_does_not_hang_is_not_abandoned(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = DiskTier(LAYOUT, 64 * LAYOUT.wire_bytes, tmp_path, threaded=True, sync=True)
    a = await world.site("a", LAYOUT, disk=disk, chunks=4, spare=4)
    for ref in make_refs(LAYOUT, 8):
        assert await a.cache.store(ref, filling(ref, LAYOUT), publish=False)
        await asyncio.sleep(0)
    await a.cache.close(PATIENCE_S)
    assert disk.hanging == 0 and not caplog.records and not disk_threads()
    os.close(lock_folder(tmp_path))
    assert not list(tmp_path.rglob("*.partial"))


async def test_what_has_not_begun_when_all_is_abandoned_never_does(
    fifos: Fifos, tmp_path: Path
) -> None:
    fifos.put(tmp_path / "fifo")
    threads = DiskThreads(1)
    done: list[int] = []
    first = asyncio.ensure_future(threads.run(lambda: (tmp_path / "fifo").open("rb").close()))
    second = asyncio.ensure_future(threads.run(lambda: done.append(1)))
    await asyncio.sleep(0.05)
    assert threads.abandon() == 2
    for waiting in (first, second, asyncio.ensure_future(threads.run(lambda: done.append(2)))):
        with pytest.raises(OSError) as caught:
            await waiting
        assert caught.value.errno == errno.ETIMEDOUT
    assert threads.close(0.0) == 1
    fifos.release()
    assert done == []


async def test_results_and_errors_come_back_from_threads() -> None:
    threads = DiskThreads(2)
    assert await asyncio.gather(*(threads.run(lambda i=i: 2 * i) for i in range(20))) == list(
        range(0, 40, 2)
    )
    with pytest.raises(FileNotFoundError):
        await threads.run(lambda: os.unlink("/nowhere"))
    assert threads.close(5.0) == 0


def test_a_process_ends_though_its_disk_hangs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = """
        import asyncio, sys
        from geokv.cache.locality.disk_threads import DiskThreads

        async def main():
            threads = DiskThreads(2)
            work = asyncio.ensure_future(threads.run(lambda: open(sys.argv[1], "rb")))
            await asyncio.sleep(0.05)
            threads.abandon()
            print(type((await asyncio.gather(work, return_exceptions=True))[0]).__name__)
            print(threads.close(0.05))

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "fifo")],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "TimeoutError\n1\n", "")
