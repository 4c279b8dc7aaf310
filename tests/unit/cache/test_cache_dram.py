"""The DRAM tier against a brute-force oracle, and what it promises one by one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import pytest
from cache_sites import content, make_layout, make_refs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geokv.cache import ChunkRef, DramTier, Lru
from geokv.cache.locality import Entry, Slot
from geokv.cache.record import checksums, make_header
from geokv.errors import CacheError, ConfigError, DamagedChunks

LAYOUT = make_layout(layers=1, groups=1, chunk_tokens=16, wire_bytes_per_token=128)
REFS = make_refs(LAYOUT, 5)
SLOTS = 3


def new_tier(slots: int = SLOTS) -> DramTier:
    return DramTier(LAYOUT, slots * LAYOUT.wire_bytes, Lru())


def fill_and_commit(tier: DramTier, slot: Slot, ref: ChunkRef) -> None:
    slot.view[:] = content(ref, LAYOUT)
    header = make_header(ref, LAYOUT, checksums(LAYOUT, slot.view), slot.generation, 1)
    tier.commit(slot, header)


def put(tier: DramTier, ref: ChunkRef) -> None:
    fill_and_commit(tier, tier.reserve(ref.key), ref)


class TierMachine(RuleBasedStateMachine):
    """The oracle: an ordered dict of readable keys, sets of reserved and leaving ones."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = new_tier()
        self.readable: OrderedDict[bytes, int] = OrderedDict()  # key -> pins, LRU first
        self.reserved: dict[bytes, Slot] = {}
        self.pins: list[tuple[Entry, ChunkRef, bool]] = []  # (entry, its ref, dropped since)
        self.evicted: list[bytes] = []
        self.tier.on_evict = lambda key, place: self.evicted.append(key)

    def leaving(self) -> int:
        return len({id(entry.view) for entry, _, dropped in self.pins if dropped})

    def used(self) -> int:
        return len(self.readable) + len(self.reserved) + self.leaving()

    @rule(ref=st.sampled_from(REFS))
    def reserve(self, ref: ChunkRef) -> None:
        if ref.key in self.readable or ref.key in self.reserved:
            with pytest.raises(CacheError, match="already here"):
                self.tier.reserve(ref.key)
            return
        if self.used() == SLOTS:
            victim = next((key for key, pins in self.readable.items() if not pins), None)
            if victim is None:
                with pytest.raises(CacheError, match="no room"):
                    self.tier.reserve(ref.key)
                return
            del self.readable[victim]
            self.reserved[ref.key] = self.tier.reserve(ref.key)
            assert self.evicted.pop() == victim
            return
        self.reserved[ref.key] = self.tier.reserve(ref.key)
        assert not self.evicted

    @precondition(lambda self: self.reserved)
    @rule(data=st.data(), commit=st.booleans())
    def settle(self, data: st.DataObject, commit: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.reserved)))
        slot = self.reserved.pop(key)
        if commit:
            fill_and_commit(self.tier, slot, next(ref for ref in REFS if ref.key == key))
            self.readable[key] = 0
        else:
            self.tier.abort(slot)
        with pytest.raises(CacheError, match="not reserved"):
            self.tier.abort(slot)

    @precondition(lambda self: self.readable)
    @rule(data=st.data())
    def get_one_that_is_here(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.readable)))
        self.get(next(ref for ref in REFS if ref.key == key))

    @rule(ref=st.sampled_from(REFS))
    def get(self, ref: ChunkRef) -> None:
        entry = self.tier.get(ref.key)
        assert (entry is not None) == (ref.key in self.readable)
        if entry is not None:
            self.readable[ref.key] += 1
            self.readable.move_to_end(ref.key)
            self.pins.append((entry, ref, False))

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.pins) - 1))
        entry, ref, dropped = self.pins.pop(at)
        entry.release()
        entry.release()
        if not dropped:
            self.readable[ref.key] -= 1

    @rule(refs=st.lists(st.sampled_from(REFS), max_size=4))
    def drop(self, refs: list[ChunkRef]) -> None:
        keys = [ref.key for ref in refs]
        expected = [key for key in dict.fromkeys(keys) if key in self.readable]
        assert self.tier.drop(keys) == expected
        for key in expected:
            del self.readable[key]
            self.pins = [(e, r, d or r.key == key) for e, r, d in self.pins]

    @invariant()
    def agrees(self) -> None:
        self.tier.check_integrity(deep=True)
        assert sorted(self.tier.keys()) == sorted(self.readable)
        stats = self.tier.stats()
        assert stats["free"] == SLOTS - self.used()
        assert (stats["reserved"], stats["leaving"]) == (len(self.reserved), self.leaving())
        for entry, ref, _ in self.pins:
            assert bytes(entry.view) == content(ref, LAYOUT)


TierMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestTierMachine = pytest.mark.slow(TierMachine.TestCase)


def test_nothing_is_readable_before_commit_and_nothing_changes_after() -> None:
    tier = new_tier()
    slot = tier.reserve(REFS[0].key)
    assert REFS[0].key not in tier and tier.get(REFS[0].key) is None
    fill_and_commit(tier, slot, REFS[0])
    with tier.get(REFS[0].key) as entry, pytest.raises(TypeError):  # type: ignore[union-attr]
        entry.view[0] = 1


def test_a_header_of_another_chunk_is_not_committed() -> None:
    tier = new_tier()
    slot = tier.reserve(REFS[0].key)
    slot.view[:] = content(REFS[1], LAYOUT)
    header = make_header(REFS[1], LAYOUT, checksums(LAYOUT, slot.view), slot.generation, 1)
    with pytest.raises(CacheError, match="header of"):
        tier.commit(slot, header)
    assert len(tier) == 0
    tier.check_integrity()


def test_generations_count_the_use_of_a_place() -> None:
    tier = new_tier(slots=1)
    for expected in (1, 2, 3):
        put(tier, REFS[expected])
        with tier.get(REFS[expected].key) as entry:  # type: ignore[union-attr]
            assert entry.generation == entry.header.generation == expected


def test_capacity_counts_what_the_run_stands_for() -> None:
    layout = make_layout(wire_bytes_per_token=2048)
    assert DramTier(layout, 10 * layout.wire_bytes + 5, Lru()).slots == 10
    with pytest.raises(ConfigError, match="holds no chunk"):
        DramTier(layout, layout.wire_bytes - 1, Lru())


def test_a_dropped_chunk_keeps_its_memory_until_the_last_reader_lets_go() -> None:
    tier = new_tier(slots=1)
    put(tier, REFS[0])
    first, second = tier.get(REFS[0].key), tier.get(REFS[0].key)
    assert first is not None and second is not None
    assert tier.drop() == [REFS[0].key]
    assert tier.get(REFS[0].key) is None  # no newcomers
    for reader in (first, second):
        with pytest.raises(CacheError, match="no room"):
            tier.reserve(REFS[1].key)
        assert bytes(reader.view) == content(REFS[0], LAYOUT)
        reader.release()
    put(tier, REFS[1])
    tier.check_integrity(deep=True)


def test_the_least_recently_read_goes_first() -> None:
    tier = new_tier()
    for ref in REFS[:3]:
        put(tier, ref)
    tier.get(REFS[0].key).release()  # type: ignore[union-attr]
    put(tier, REFS[3])
    put(tier, REFS[4])
    assert sorted(tier.keys()) == sorted(REFS[i].key for i in (0, 3, 4))
    assert tier.stats()["evictions"] == 2


def test_a_chunk_that_was_brought_for_a_reader_is_no_hit_of_the_tier() -> None:
    tier = new_tier()
    slot = tier.reserve(REFS[0].key)
    slot.view[:] = content(REFS[0], LAYOUT)
    sums = checksums(LAYOUT, slot.view)
    tier.commit(slot, make_header(REFS[0], LAYOUT, sums, slot.generation, 1), fresh=True)
    for hits in (0, 1, 2):
        with tier.get(REFS[0].key) as entry:  # type: ignore[union-attr]
            assert tier.stats()["hits"] == entry.uses == hits


async def test_everybody_who_waits_for_a_chunk_learns_how_it_ended() -> None:
    tier = new_tier()
    good, bad = tier.reserve(REFS[0].key), tier.reserve(REFS[1].key)
    waiting = [tier.pending(key) for key in (REFS[0].key, REFS[0].key, REFS[1].key)]
    assert tier.pending(REFS[2].key) is None
    fill_and_commit(tier, good, REFS[0])
    tier.abort(bad, "timeout")
    assert await asyncio.gather(*waiting) == ["", "", "timeout"]  # type: ignore[arg-type]


def test_the_deep_check_sees_a_rotten_byte() -> None:
    tier = new_tier()
    put(tier, REFS[0])
    tier.check_integrity(deep=True)
    slot = tier._cached[REFS[0].key]
    slot.view[5] ^= 1
    tier.check_integrity()
    with pytest.raises(DamagedChunks, match=r"its checksums$") as said:
        tier.check_integrity(deep=True)
    assert said.value.keys == {"dram": [REFS[0].key]}
    put(tier, REFS[1])
    tier._cached[REFS[1].key].view[7] ^= 1
    with pytest.raises(DamagedChunks, match=r"its checksums, and 1 more$") as said:
        tier.check_integrity(deep=True)
    assert set(said.value.keys["dram"]) == {REFS[0].key, REFS[1].key}


def test_wrong_books_are_said_before_rotten_bytes() -> None:
    """Whoever is told of rotten bytes alone may rely on the books."""
    tier = new_tier()
    put(tier, REFS[0])
    tier._cached[REFS[0].key].view[5] ^= 1
    tier._quota = type(tier._quota)(tier.slots)
    with pytest.raises(CacheError, match="quotas") as said:
        tier.check_integrity(deep=True)
    assert not isinstance(said.value, DamagedChunks)
