from __future__ import annotations

from dataclasses import dataclass

import pytest
from engine_steps import path_tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geokv.engine.prefix import PrefixNode, PrefixTree
from geokv.errors import EngineError

SIZE = 2
Path = tuple[int, ...]


def test_a_match_is_whole_blocks_of_the_same_namespace() -> None:
    tree = PrefixTree(SIZE)
    tree.insert(b"a", [1, 2, 3, 4], [10, 11])
    assert [n.block for n in tree.match(b"a", [1, 2, 3, 4, 5])] == [10, 11]
    assert [n.block for n in tree.match(b"a", [1, 2, 3])] == [10]
    assert tree.match(b"a", [1]) == []
    assert tree.match(b"a", [3, 4]) == []
    assert tree.match(b"b", [1, 2, 3, 4]) == []
    assert path_tokens(tree.match(b"a", [1, 2, 3, 4])[-1]) == [1, 2, 3, 4]


def test_what_is_cached_already_is_not_adopted_again() -> None:
    tree = PrefixTree(SIZE)
    tree.insert(b"a", [1, 2, 3, 4], [10, 11])
    nodes, adopted = tree.insert(b"a", [1, 2, 5, 6], [20, 21])
    assert [n.block for n in nodes] == [10, 21]
    assert adopted == [21]
    tree.check_integrity()


def test_tokens_that_hash_alike_do_not_match() -> None:
    tree = PrefixTree(SIZE)
    # In CPython hash(-1) == hash(-2), so these two edges collide in the dictionary.
    tree.insert(b"a", [-1, 0], [1])
    assert hash((-1, 0)) == hash((-2, 0))
    assert tree.match(b"a", [-2, 0]) == []


def test_eviction_reports_node_and_cause_and_spares_what_is_locked() -> None:
    seen: list[tuple[int, str, list[int]]] = []
    tree = PrefixTree(SIZE, lambda node, cause: seen.append((node.block, cause, path_tokens(node))))
    nodes, _ = tree.insert(b"a", [1, 2, 3, 4], [10, 11])
    tree.insert(b"b", [5, 6], [12])
    tree.lock(nodes[0])
    assert tree.evict(9) == [11, 12]
    assert seen == [(11, "pressure", [1, 2, 3, 4]), (12, "pressure", [5, 6])]
    assert tree.flush() == []
    tree.unlock(nodes[0])
    assert tree.flush(b"b") == []
    assert tree.flush(b"a") == [10]
    assert seen[-1][1] == "flush"
    with pytest.raises(EngineError, match="evicted"):
        tree.lock(nodes[0])
    with pytest.raises(EngineError, match="unlocked more often"):
        tree.unlock(nodes[0])
    tree.check_integrity()
    assert tree.size == 0


def test_looking_without_touching_does_not_save_from_eviction() -> None:
    tree = PrefixTree(SIZE)
    tree.insert(b"a", [1, 2], [1])
    tree.insert(b"a", [3, 4], [2])
    tree.match(b"a", [1, 2], touch=False)
    assert tree.evict(1) == [1]
    tree.insert(b"a", [5, 6], [3])
    tree.match(b"a", [3, 4])
    assert tree.evict(1) == [3]


def test_candidate_list_stays_small_under_endless_use() -> None:
    tree = PrefixTree(SIZE)
    nodes, _ = tree.insert(b"a", [1, 2], [1])
    for _ in range(2000):
        tree.lock(nodes[0])
        tree.unlock(nodes[0])
    assert len(tree._leaves) < 100
    tree.check_integrity()
    assert tree.evict(1) == [1]


@pytest.mark.parametrize("damage", ["size", "locks", "child", "leaf", "double"])
def test_integrity_check_sees_damage(damage: str) -> None:
    tree = PrefixTree(SIZE)
    (first, second), _ = tree.insert(b"a", [1, 2, 3, 4], [10, 11])
    if damage == "size":
        tree._size += 1
    elif damage == "locks":
        second.locks = 1
    elif damage == "child":
        first.children[(9, 9)] = first.children.pop((3, 4))
    elif damage == "leaf":
        tree._leaves.clear()
    else:
        second.block = 10
    with pytest.raises(EngineError, match="prefix tree"):
        tree.check_integrity()


@dataclass
class Entry:
    block: int
    used: int
    locks: int = 0


class TreeMachine(RuleBasedStateMachine):
    """The tree against a flat dictionary from whole prefixes to blocks."""

    roots = st.sampled_from([b"a", b"b"])
    prompts = st.lists(st.sampled_from([0, 1]), max_size=7)

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[tuple[bytes, Path]] = []
        self.tree = PrefixTree(
            SIZE, lambda node, _: self.evicted.append((node.root, tuple(path_tokens(node))))
        )
        self.entries: dict[tuple[bytes, Path], Entry] = {}
        self.held: list[PrefixNode] = []
        self.now = 0
        self.block = 0

    def prefixes(self, tokens: list[int]) -> list[Path]:
        return [tuple(tokens[:n]) for n in range(SIZE, len(tokens) + 1, SIZE)]

    def found(self, root: bytes, tokens: list[int]) -> list[tuple[bytes, Path]]:
        keys = [(root, prefix) for prefix in self.prefixes(tokens)]
        hits = [key in self.entries for key in keys]
        return keys[: hits.index(False)] if False in hits else keys

    def use(self, keys: list[tuple[bytes, Path]]) -> None:
        self.now += 1
        for key in keys:
            self.entries[key].used = self.now

    @rule(root=roots, tokens=prompts, touch=st.booleans())
    def match(self, root: bytes, tokens: list[int], touch: bool) -> None:
        keys = self.found(root, tokens)
        nodes = self.tree.match(root, tokens, touch)
        assert [n.block for n in nodes] == [self.entries[key].block for key in keys]
        if touch:
            self.use(keys)

    @rule(root=roots, tokens=prompts)
    def insert(self, root: bytes, tokens: list[int]) -> None:
        tokens = tokens[: len(tokens) // SIZE * SIZE]
        keys = [(root, prefix) for prefix in self.prefixes(tokens)]
        blocks = list(range(self.block, self.block + len(keys)))
        self.block += len(keys)
        _, adopted = self.tree.insert(root, tokens, blocks)
        new = [(k, b) for k, b in zip(keys, blocks, strict=True) if k not in self.entries]
        assert adopted == [b for _, b in new]
        self.entries |= {key: Entry(block, 0) for key, block in new}
        self.use(keys)

    @rule(root=roots, tokens=prompts)
    def lock(self, root: bytes, tokens: list[int]) -> None:
        nodes = self.tree.match(root, tokens, touch=False)
        if nodes:
            self.tree.lock(nodes[-1])
            self.held.append(nodes[-1])
            for key in self.found(root, tokens):
                self.entries[key].locks += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        node = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.tree.unlock(node)
        for prefix in self.prefixes(path_tokens(node)):
            self.entries[(node.root, prefix)].locks -= 1

    def evictable(self, root: bytes | None = None) -> list[tuple[bytes, Path]]:
        return [
            key
            for key, entry in self.entries.items()
            if not entry.locks
            and root in (None, key[0])
            and not any(k[0] == key[0] and k[1][:-SIZE] == key[1] for k in self.entries)
        ]

    @rule(count=st.integers(0, 4))
    def evict(self, count: int) -> None:
        wanted = []
        while len(wanted) < count and (leaves := self.evictable()):
            key = min(leaves, key=lambda k: self.entries[k].used)
            wanted.append((key, self.entries.pop(key).block))
        self.evicted.clear()
        assert self.tree.evict(count) == [block for _, block in wanted]
        assert self.evicted == [key for key, _ in wanted]

    @rule(root=st.sampled_from([b"a", None]))
    def flush(self, root: bytes | None) -> None:
        wanted = []
        while leaves := self.evictable(root):
            wanted += [self.entries.pop(key).block for key in leaves]
        assert sorted(self.tree.flush(root)) == sorted(wanted)

    @invariant()
    def agrees(self) -> None:
        self.tree.check_integrity()
        assert sorted(self.tree.blocks()) == sorted(e.block for e in self.entries.values())
        assert self.tree.locked == sum(e.locks > 0 for e in self.entries.values())


TestTreeMachine = pytest.mark.slow(TreeMachine.TestCase)
TestTreeMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=12), max_size=8))
def test_evicting_everything_empties_the_tree(prompts: list[list[int]]) -> None:
    tree = PrefixTree(SIZE)
    block, cached = 0, set()
    for prompt in prompts:
        whole = prompt[: len(prompt) // SIZE * SIZE]
        blocks = list(range(block, block + len(whole) // SIZE))
        block += len(blocks)
        cached |= set(tree.insert(b"", whole, blocks)[1])
    assert set(tree.evict(10_000)) == cached
    assert tree.size == 0
    tree.check_integrity()
