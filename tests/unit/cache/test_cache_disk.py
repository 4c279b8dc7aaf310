"""The disk tier: whole or absent, verified or a miss, down without taking others along."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cache_sites import content, make_layout, make_refs

from geokv.cache import ChunkRef
from geokv.cache.locality import DiskCost, DiskTier, Entry, Tier, disk_cost, disk_file, outage
from geokv.cache.record import checksums, make_header
from geokv.errors import CacheError, ConfigError, FetchError
from geokv.units import NS_PER_S

LAYOUT = make_layout(layers=2, groups=2, chunk_tokens=16, wire_bytes_per_token=512)
REFS = make_refs(LAYOUT, 6)
HERE = Path(__file__).parent


def new_tier(folder: Path, slots: int = 4, **more: object) -> DiskTier:
    return DiskTier(LAYOUT, slots * LAYOUT.wire_bytes, folder, **more)  # type: ignore[arg-type]


async def put(tier: DiskTier, *refs: ChunkRef) -> None:
    for ref in refs:
        payload = memoryview(content(ref, tier.layout))
        slot = tier.reserve(ref.key)
        sums = checksums(tier.layout, payload)
        await tier.write(slot, make_header(ref, tier.layout, sums, 1, 1), payload)


def pinned(tier: DiskTier, ref: ChunkRef) -> Entry:
    entry = tier.get(ref.key)
    assert entry is not None
    return entry


async def read(tier: DiskTier, ref: ChunkRef) -> bytes:
    memory = memoryview(bytearray(tier.layout.real_bytes))
    with pinned(tier, ref) as entry:
        header = await tier.read(entry, memory)
    assert (header.key, header.tokens, header.tenant) == (ref.key, ref.tokens, ref.tenant)
    return bytes(memory)


def file_of(folder: Path, ref: ChunkRef) -> Path:
    (path,) = folder.rglob(ref.key.hex() + ".kv")
    return path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time outages go by, in ms; it stands still unless a test moves it."""
    clock = SimpleNamespace(ms=0)
    monkeypatch.setattr(outage, "now_ns", lambda: clock.ms * NS_PER_S // 1000)
    return clock


async def test_what_was_written_is_read_and_outlives_the_process(tmp_path: Path) -> None:
    tier: Tier = new_tier(tmp_path)
    assert isinstance(tier, DiskTier)
    await put(tier, *REFS[:3])
    for ref in REFS[:3]:
        assert await read(tier, ref) == content(ref, LAYOUT)
    tier.drop([REFS[1].key])
    tier.close()
    again = new_tier(tmp_path)
    assert again.keys() == [REFS[0].key, REFS[2].key] and again.indexed == 2
    assert await read(again, REFS[2]) == content(REFS[2], LAYOUT)
    again.check_integrity(deep=True)
    again.close()


def test_no_byte_at_which_a_process_is_killed_tears_an_entry(tmp_path: Path) -> None:
    script = [sys.executable, str(HERE / "disk_writer.py"), str(tmp_path), "200", "7"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr
    told = json.loads(done.stdout)
    assert told["rounds"] == 200
    # Most ends were in the middle of an entry, some after its name was given.
    assert told["partial"] > 100 and told["extra"] > 3


def _damages(whole: bytes, other: bytes) -> list[tuple[str, bytes]]:
    cases = []
    for at in [*range(64), *range(64, len(whole), 41), len(whole) - 1]:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        cases.append((f"bit {at % 8} of byte {at}", bytes(flipped)))
    cases += [(f"cut to {n}", whole[:n]) for n in [*range(0, 64, 7), *range(64, len(whole), 211)]]
    cases += [("one byte more", whole + b"\0"), ("twice", whole + whole), ("zeros", bytes(2000))]
    return [*cases, ("another chunk's file", other), ("a text", b"hello" * 500)]


async def test_every_damage_is_a_counted_miss_and_removed(tmp_path: Path) -> None:
    tier = new_tier(tmp_path)
    await put(tier, REFS[0], REFS[1])
    tier.close()
    path, whole = file_of(tmp_path, REFS[0]), file_of(tmp_path, REFS[0]).read_bytes()
    for what, damaged in _damages(whole, file_of(tmp_path, REFS[1]).read_bytes()):
        path.write_bytes(damaged)
        late = new_tier(tmp_path)
        if REFS[0].key in late:  # the payload is looked at when it is read
            lost: list[tuple[bytes, int]] = []
            place = late.place(REFS[0].key)

            def on_lost(key: bytes, where: int, lost: list[tuple[bytes, int]] = lost) -> None:
                lost.append((key, where))

            late.on_lost = on_lost
            with pytest.raises(FetchError) as caught:
                await read(late, REFS[0])
            assert caught.value.cause == "corrupt" and lost == [(REFS[0].key, place)], what
        assert late.causes == {"corrupt": 1}, what
        assert REFS[0].key not in late and not path.exists(), what
        assert await read(late, REFS[1]) == content(REFS[1], LAYOUT)
        late.check_integrity(deep=True)
        late.close()


async def test_damage_while_it_runs_is_found_when_it_is_read(tmp_path: Path) -> None:
    tier = new_tier(tmp_path)
    await put(tier, *REFS[:3])
    whole = file_of(tmp_path, REFS[0]).read_bytes()
    for ref, damaged in zip(REFS[:3], _damages(whole, whole)[40:43], strict=True):
        file_of(tmp_path, ref).write_bytes(damaged[1])
        with pytest.raises(CacheError):
            tier.check_integrity(deep=True)
        with pytest.raises(FetchError, match=ref.key.hex()):
            await read(tier, ref)
    assert tier.causes == {"corrupt": 3} and not len(tier)
    await put(tier, REFS[3])
    file_of(tmp_path, REFS[3]).unlink()
    with pytest.raises(FetchError) as caught:
        await read(tier, REFS[3])
    assert caught.value.cause == "disk" and not tier.outage.down
    tier.check_integrity(deep=True)
    tier.close()


async def test_what_does_not_fit_goes_oldest_first_now_and_after_a_restart(tmp_path: Path) -> None:
    tier = new_tier(tmp_path, slots=3)
    await put(tier, *REFS[:5])
    assert sorted(tier.keys()) == sorted(ref.key for ref in REFS[2:5])
    tier.close()
    smaller = new_tier(tmp_path, slots=2)
    assert smaller.keys() == [REFS[3].key, REFS[4].key]
    assert len(list(tmp_path.rglob("*.kv"))) == 2
    smaller.close()


async def test_entries_of_another_layout_are_not_served_and_go_first(tmp_path: Path) -> None:
    theirs = make_layout(
        model_fingerprint="other", layers=2, groups=2, chunk_tokens=16, wire_bytes_per_token=512
    )
    other = DiskTier(theirs, 4 * theirs.wire_bytes, tmp_path)
    foreign = make_refs(theirs, 3)
    await put(other, *foreign)
    other.close()
    tier = new_tier(tmp_path, slots=4)
    assert not len(tier) and tier.stats()["foreign"] == 3
    assert tier.get(foreign[0].key) is None
    await put(tier, REFS[0])
    assert tier.stats()["foreign"] == 3  # there is room for all
    await put(tier, REFS[1], REFS[2])
    assert tier.stats()["foreign"] == 1 and len(tier) == 3
    tier.close()
    back = DiskTier(theirs, 4 * theirs.wire_bytes, tmp_path)
    assert back.keys() == [foreign[2].key]
    assert await read(back, foreign[2]) == content(foreign[2], theirs)
    back.close()


def test_a_folder_belongs_to_one_process(tmp_path: Path) -> None:
    tier = new_tier(tmp_path)
    with pytest.raises(ConfigError, match="in use by another process"):
        new_tier(tmp_path)
    tier.close()
    new_tier(tmp_path).close()


def test_other_files_are_left_alone_and_partial_ones_are_not(tmp_path: Path) -> None:
    shard = tmp_path / "v1" / "ab"
    shard.mkdir(parents=True)
    keep = [shard / "README", tmp_path / "v2" / "x.kv", tmp_path / "v1" / "notes" / "n.kv"]
    for path in keep:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    partial = shard / ("ab" * 16 + ".partial")
    partial.write_bytes(b"half")
    tier = new_tier(tmp_path)
    tier.close()
    assert all(path.exists() for path in keep) and not partial.exists()
    assert tier.causes == {"partial": 1}


class Refusing:
    """Stands for ``os.write`` on a disk that refuses after some bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error = 0
        self.after = 0
        monkeypatch.setattr(disk_file, "_write", self)

    def __call__(self, descriptor: int, piece: memoryview) -> int:
        if self.error and self.after < len(piece):
            if self.after:
                os.write(descriptor, piece[: self.after])
            raise OSError(self.error, os.strerror(self.error))
        return os.write(descriptor, piece)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
async def test_a_refusing_disk_warns_once_and_comes_back(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    clock: SimpleNamespace,
) -> None:
    disk = Refusing(monkeypatch)
    tier = new_tier(tmp_path, retry_s=0.05)
    told: list[str] = []
    tier.outage.on_change = told.append
    await put(tier, REFS[0])
    disk.error, disk.after = number, 700
    with caplog.at_level(logging.WARNING):
        for ref in REFS[1:4]:
            with pytest.raises(CacheError):
                await put(tier, ref)
        clock.ms += 60
        with pytest.raises(CacheError, match="not written"):
            await put(tier, REFS[1])  # it was time to try
        with pytest.raises(CacheError, match="disk is down"):
            await put(tier, REFS[1])
    assert len(caplog.records) == 1 and tier.stats()["failures"] == {errno.errorcode[number]: 2}
    assert await read(tier, REFS[0]) == content(REFS[0], LAYOUT)
    assert not list(tmp_path.rglob("*.partial"))
    disk.error = 0
    clock.ms += 110
    await put(tier, REFS[1])
    assert not tier.outage.down and tier.stats()["outages"] == 1
    assert [bool(text) for text in told] == [True, False]
    tier.check_integrity(deep=True)
    tier.close()


def test_a_disk_is_left_alone_twice_as_long_each_time_up_to_a_minute(
    clock: SimpleNamespace,
) -> None:
    state = outage.Outage(10)

    def waits() -> list[int]:
        found = []
        for _ in range(5):
            failed_ms = clock.ms
            state.fail("writing", OSError(errno.EIO, "Input/output error"))
            while not state.may_try:
                clock.ms += 1000
            found.append((clock.ms - failed_ms) // 1000)
        return found

    assert waits() == [10, 20, 40, 60, 60]
    state.work()
    assert waits() == [10, 20, 40, 60, 60]
    assert (state.outages, state.failures) == (2, {"EIO": 10})


async def test_a_disk_that_is_not_there_at_first_is_indexed_when_it_is(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    tier = new_tier(tmp_path / "disk")
    await put(tier, REFS[0])
    tier.close()
    (tmp_path / "disk").rename(tmp_path / "away")
    (tmp_path / "disk").write_text("a file in its place")
    late = new_tier(tmp_path / "disk", retry_s=0.02)
    assert late.outage.down and not len(late)
    (tmp_path / "disk").unlink()
    (tmp_path / "away").rename(tmp_path / "disk")
    with pytest.raises(CacheError, match="disk is down"):
        late.reserve(REFS[1].key)
    clock.ms += 30
    await put(late, REFS[1])
    assert sorted(late.keys()) == sorted([REFS[0].key, REFS[1].key])
    late.check_integrity(deep=True)
    late.close()


def test_a_real_full_and_a_real_read_only_disk(tmp_path: Path) -> None:
    """The same against the kernel: a tmpfs of 64 kB, full, then mounted read-only."""
    space = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        able = subprocess.run(
            [*space, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True, timeout=20
        )
    except FileNotFoundError:
        pytest.skip("no unshare(1) here")
    if able.returncode:
        pytest.skip(f"this user may not mount in a namespace: {able.stderr.decode().strip()}")
    script = [sys.executable, str(HERE / "disk_full.py"), str(tmp_path)]
    done = subprocess.run([*space, *script], capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == {"full": ["ENOSPC"], "read-only": ["EROFS"], "warnings": 2}


async def test_what_is_dropped_while_it_is_written_or_read_is_not_there_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = new_tier(tmp_path)
    await put(tier, REFS[0])
    over = asyncio.Event()
    monkeypatch.setattr(tier.time, "until", lambda end_ns: over.wait())
    writing = asyncio.ensure_future(put(tier, REFS[1]))
    reading = asyncio.ensure_future(read(tier, REFS[0]))
    await asyncio.sleep(0)
    assert tier.drop([REFS[0].key, REFS[1].key]) == [REFS[0].key]
    over.set()
    with pytest.raises(CacheError, match="dropped while it was written"):
        await writing
    with pytest.raises(FetchError, match="dropped while it was read"):
        await reading
    assert not len(tier) and not list(tmp_path.rglob("*.kv"))
    tier.check_integrity(deep=True)
    await put(tier, REFS[1])
    assert await read(tier, REFS[1]) == content(REFS[1], LAYOUT)
    tier.close()


async def test_a_file_that_cannot_be_removed_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    tier = new_tier(tmp_path, retry_s=0.01)
    await put(tier, REFS[0], REFS[1])
    remove = os.unlink

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(disk_file.os, "unlink", refuse)
    assert tier.drop([REFS[0].key]) == [REFS[0].key]
    assert [path.stem for path in tier.undeleted([r.key for r in REFS])] == [REFS[0].key.hex()]
    assert REFS[0].key not in tier and tier.outage.down
    monkeypatch.setattr(disk_file.os, "unlink", remove)
    clock.ms += 20
    await put(tier, REFS[2])
    assert not tier.undeleted([REFS[0].key]) and not tier.outage.down
    tier.close()
    again = new_tier(tmp_path)
    assert REFS[0].key not in again and len(again) == 2
    again.close()


async def test_a_file_that_could_not_be_removed_is_an_entry_once_it_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    tier = new_tier(tmp_path, retry_s=0.01)
    await put(tier, REFS[0])

    def refuse(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk_file.os, "unlink", refuse)
        tier.drop([REFS[0].key])
        clock.ms += 20
        await put(tier, REFS[0])
        assert not tier.undeleted([REFS[0].key])
    await put(tier, REFS[1])  # removes what is left over
    assert await read(tier, REFS[0]) == content(REFS[0], LAYOUT)
    tier.close()


class Clock:
    """Virtual time: nothing takes any but what is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000 * NS_PER_S
        monkeypatch.setattr(disk_cost, "now_ns", lambda: self.now)
        monkeypatch.setattr(disk_cost, "wait_until_ns", self.wait)

    async def wait(self, end_ns: int) -> None:
        self.now = max(self.now, end_ns)


async def test_time_is_bandwidth_in_turn_and_latency_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    cost = DiskCost(read_bytes_per_s=6.5e9, write_bytes_per_s=3.5e9)
    time = disk_cost.DiskTime(cost.scaled(4))
    chunk = 32 * 2**20 // 4  # 256 tokens of 128 KiB, scaled by 4
    begun = clock.now
    ends = [time.book("read", chunk) for _ in range(3)]
    written = time.book("write", chunk)  # does not wait for the reads
    alone = round(32 * 2**20 / 6.5e9 * NS_PER_S)
    assert [end - begun for end in ends] == [n * alone + 85_000 for n in (1, 2, 3)]
    assert written - begun == round(32 * 2**20 / 3.5e9 * NS_PER_S) + 20_000
    for end in ends:
        await time.until(end)
    assert clock.now == ends[2] and time.late_ns == 0
    clock.now += NS_PER_S  # an idle disk starts at once
    assert time.book("read", chunk) - clock.now == alone + 85_000
    clock.now += NS_PER_S
    await time.until(clock.now - 5)
    assert time.late_ns == 5
    assert disk_cost.DiskTime(None).book("read", chunk) == 0


async def test_the_tier_charges_what_the_run_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    tier = new_tier(tmp_path, cost=DiskCost(1e6, 1e6, 0.001, 0.002))
    begun = clock.now
    await put(tier, REFS[0])
    wrote = clock.now - begun
    assert wrote == round(LAYOUT.wire_bytes / 1e6 * NS_PER_S) + 2_000_000
    await read(tier, REFS[0])
    assert clock.now - begun - wrote == round(LAYOUT.wire_bytes / 1e6 * NS_PER_S) + 1_000_000
    assert tier.stats()["written_bytes"] == tier.stats()["read_bytes"] == LAYOUT.wire_bytes
    tier.close()


async def test_work_on_threads_ends_before_its_caller_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = new_tier(tmp_path, threaded=True, sync=True)
    await put(tier, *REFS[:3])
    assert await read(tier, REFS[1]) == content(REFS[1], LAYOUT)
    busy = Refusing(monkeypatch)
    import time

    monkeypatch.setattr(disk_file, "_write", lambda fd, p: (time.sleep(0.05), busy(fd, p))[1])
    writing = asyncio.ensure_future(put(tier, REFS[3]))
    await asyncio.sleep(0.01)
    begun = time.monotonic()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert time.monotonic() - begun > 0.08  # the thread still read the memory
    assert REFS[3].key not in tier and not list(tmp_path.rglob("*.partial"))
    tier.check_integrity(deep=True)
    tier.close()
