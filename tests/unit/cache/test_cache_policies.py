"""Eviction policies without a byte of KV: each against a plain oracle, then on loads."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.cache.lifetime import POLICIES, EvictionPolicy, Lru, S3Fifo, make_policy
from geokv.errors import ConfigError


def always(key: bytes) -> bool:
    return True


class Resident:
    """The least tier: keys, a capacity and a policy."""

    def __init__(self, policy: EvictionPolicy, capacity: int) -> None:
        self.policy = policy
        self.capacity = capacity
        self.keys: set[bytes] = set()

    def ask(self, key: bytes) -> bool:
        """Read ``key``, or bring it here; was it a hit?"""
        if key in self.keys:
            self.policy.used(key)
            return True
        if len(self.keys) == self.capacity:
            victim = self.policy.evict(key, always)
            assert victim is not None
            self.keys.remove(victim)
        self.keys.add(key)
        self.policy.added(key)
        return False


class PlainS3Fifo:
    """AIBrix's steps written down again: the newcomer is put first, then room is made,
    but it is never itself the victim and stays the newest. Lists, newest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.small_most = int(0.3 * capacity)
        self.main_most = capacity - self.small_most
        self.small: list[bytes] = []
        self.main: list[bytes] = []
        self.ghost: list[bytes] = []
        self.hotness: dict[bytes, int] = {}

    def ask(self, key: bytes) -> bool:
        if key in self.small or key in self.main:
            self.hotness[key] = min(self.hotness[key] + 1, 3)
            return True
        self.hotness[key] = 0
        queue = self.main if key in self.ghost else self.small
        if key in self.ghost:
            self.ghost.remove(key)
        queue.insert(0, key)
        while len(self.small) + len(self.main) > self.capacity:
            others = self.small != [key] and bool(self.small)
            if others and (len(self.small) > self.small_most or not self.main):
                self.evict_small(key)
            else:
                self.evict_main(key)
        return False

    def evict_small(self, newcomer: bytes) -> None:
        key = next(k for k in reversed(self.small) if k != newcomer)
        self.small.remove(key)
        if self.hotness[key] >= 1:
            self.hotness[key] = 0
            self.requeue(key, newcomer)
            if len(self.main) > self.main_most:
                self.evict_main(newcomer)
        else:
            self.ghost.insert(0, key)
            while len(self.ghost) > self.main_most:
                self.ghost.pop()

    def evict_main(self, newcomer: bytes) -> None:
        key = next(k for k in reversed(self.main) if k != newcomer)
        self.main.remove(key)
        if self.hotness[key] >= 1:
            self.hotness[key] -= 1
            self.requeue(key, newcomer)

    def requeue(self, key: bytes, newcomer: bytes) -> None:
        self.main.insert(1 if newcomer in self.main else 0, key)


def skewed(rng: random.Random, keys: int) -> bytes:
    return int(keys * rng.random() ** 3).to_bytes(4, "big")


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 10, 37])
def test_s3fifo_does_what_aibrix_does(capacity: int) -> None:
    rng = random.Random(capacity)
    plain, mine = PlainS3Fifo(capacity), Resident(S3Fifo(capacity), capacity)
    for _ in range(4000):
        key = skewed(rng, 6 * capacity)
        assert mine.ask(key) == plain.ask(key)
        assert mine.keys == {*plain.small, *plain.main}


def test_lru_lfu_and_fifo_give_up_whom_they_should() -> None:
    a, b, c = b"a", b"b", b"c"
    order: dict[str, list[bytes]] = {}
    for name in ("lru", "lfu", "fifo"):
        policy = make_policy(name, 3)
        for key in (a, b, c):
            policy.added(key)
        for key in (a, a, b, b, b, c, a):
            policy.used(key)
        order[name] = [policy.evict(b"new", always) or b"" for _ in range(3)]
        assert policy.evict(b"new", always) is None
    # Read last: a, c, b. Read often: b three times, a three times (later), c once.
    assert order == {"lru": [b, c, a], "lfu": [c, b, a], "fifo": [a, b, c]}


@pytest.mark.parametrize("name", ["lru", "lfu"])
def test_of_one_prefix_the_tail_goes_first(name: str) -> None:
    policy = make_policy(name, 4)
    keys = [b"head", b"neck", b"back", b"tail"]
    for key in keys:
        policy.added(key)
    policy.chained(keys)
    assert [policy.evict(b"new", always) for _ in keys] == keys[::-1]


class Both:
    """A policy beside the set of keys it must know."""

    def __init__(self, name: str) -> None:
        self.policy = make_policy(name, 8)
        self.keys: set[bytes] = set()


_step = st.tuples(st.sampled_from(["add", "use", "drop", "evict", "chain"]), st.integers(0, 11))


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(_step, max_size=80), pinned=st.sets(st.integers(0, 11)))
def test_no_policy_gives_up_what_may_not_go(
    name: str, steps: list[tuple[str, int]], pinned: set[int]
) -> None:
    both = Both(name)
    stay = {bytes((number,)) for number in pinned}
    for what, number in steps:
        key = bytes((number,))
        if what == "add" and key not in both.keys:
            both.policy.added(key)
            both.keys.add(key)
        elif what == "use" and key in both.keys:
            both.policy.used(key)
        elif what == "drop" and key in both.keys:
            both.policy.removed(key)
            both.keys.remove(key)
        elif what == "chain":
            both.policy.chained(sorted(both.keys))
        elif what == "evict" and key not in both.keys:
            victim = both.policy.evict(key, lambda k: k not in stay)
            if victim is None:
                assert both.keys <= stay
            else:
                assert victim in both.keys - stay
                both.keys.remove(victim)
        assert sorted(both.policy.keys()) == sorted(both.keys)


def hits(name: str, asked: list[bytes], capacity: int, count: Callable[[bytes], bool]) -> int:
    tier = Resident(make_policy(name, capacity), capacity)
    return sum(tier.ask(key) and count(key) for key in asked)


def test_a_scan_ruins_lru_and_not_s3fifo() -> None:
    rng = random.Random(5)
    asked: list[bytes] = []
    scanned = 0
    for _ in range(200):
        asked += [b"hot" + skewed(rng, 60) for _ in range(40)]
        asked += [b"scan" + number.to_bytes(4, "big") for number in range(scanned, scanned + 120)]
        scanned += 120
    hot = sum(key.startswith(b"hot") for key in asked)
    rate = {name: hits(name, asked, 100, lambda k: True) / hot for name in ("lru", "s3fifo")}
    # A round asks for some 20 different hot keys and then for 120 that come once.
    assert rate["lru"] < 0.55
    assert rate["s3fifo"] > 0.9


def test_under_pure_recency_they_are_equal_within_two_points() -> None:
    rng = random.Random(6)
    recent = Lru()
    asked: list[bytes] = []
    fresh = 0
    for _ in range(20_000):
        order = list(recent.keys())
        if order and rng.random() < 0.8:
            key = order[-1 - min(int(rng.expovariate(1 / 15)), len(order) - 1)]
            recent.used(key)
        else:
            key, fresh = fresh.to_bytes(4, "big"), fresh + 1
            recent.added(key)
            if fresh > 300:
                recent.evict(key, always)
        asked.append(key)
    lru, s3fifo = (hits(name, asked, 100, lambda k: True) for name in ("lru", "s3fifo"))
    assert abs(lru - s3fifo) / len(asked) < 0.02


def test_impossible_policies_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="eviction policy mru: no installed package has registered 'mru'"
    ):
        make_policy("mru", 4)
    for settings_ in ({"small_share": 0.0}, {"small_share": 1.0}, {"promotion_hits": 4}):
        with pytest.raises(ConfigError, match="s3fifo"):
            S3Fifo(4, **settings_)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="capacity"):
        S3Fifo(0)
