"""Which prefixes are in the pool: a tree of whole blocks per namespace.

After SGLang's RadixAttention (NeurIPS 2024, §3) at block granularity: an edge is the
tuple of a block's tokens, so a match compares tokens and never trusts a hash. A path in
use is locked; eviction takes the least recently used unlocked leaf, so a block never
outlives the blocks it depends on. The tree names blocks, it owns no memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from geokv.errors import EngineError


@dataclass(eq=False, slots=True)
class PrefixNode:
    """One cached block. ``depth`` counts blocks before it; ``root`` is its namespace."""

    root: bytes
    depth: int
    tokens: tuple[int, ...]
    block: int
    parent: PrefixNode | None
    children: dict[tuple[int, ...], PrefixNode] = field(default_factory=dict)
    locks: int = 0
    tick: int = 0
    evicted: bool = False

    def path(self) -> list[PrefixNode]:
        """Nodes from the first block of the prefix to this one."""
        nodes: list[PrefixNode] = []
        node: PrefixNode | None = self
        while node is not None and node.depth >= 0:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


OnEvict = Callable[[PrefixNode, str], None]


class PrefixTree:
    """Cached blocks of all namespaces under one least-recently-used order.

    Args:
        on_evict: called with each evicted node and the cause (``pressure``,
            ``flush``), after it has left the tree.
    """

    def __init__(self, block_tokens: int, on_evict: OnEvict | None = None) -> None:
        if block_tokens < 1:
            raise EngineError(f"block_tokens must be ≥ 1, got {block_tokens}")
        self.block_tokens = block_tokens
        self.hidden: Callable[[bytes], bool] = lambda root: False
        """Of which namespaces nothing may be found now, though it is here."""
        self._on_evict = on_evict
        self._roots: dict[bytes, PrefixNode] = {}
        self._size = 0
        self._locked = 0
        self._clock = 0
        self._serial = 0
        self._leaves: list[tuple[int, int, PrefixNode]] = []

    @property
    def size(self) -> int:
        """Blocks in the tree."""
        return self._size

    @property
    def locked(self) -> int:
        """Blocks in the tree that some sequence holds locked."""
        return self._locked

    def match(self, root: bytes, tokens: Sequence[int], touch: bool = True) -> list[PrefixNode]:
        """Nodes of the longest cached prefix of ``tokens``, whole blocks only.

        Args:
            touch: mark them as just used; False only looks.
        """
        found: list[PrefixNode] = []
        node = self._roots.get(root)
        if node is None or self.hidden(root):
            return found
        for key in self._keys(tokens):
            child = node.children.get(key)
            if child is None:
                break
            found.append(child)
            node = child
        if touch and found:
            self._touch(found)
        return found

    def insert(
        self, root: bytes, tokens: Sequence[int], blocks: Sequence[int]
    ) -> tuple[list[PrefixNode], list[int]]:
        """Make ``tokens`` (whole blocks) cached in ``blocks``.

        Returns:
            The nodes of the path, and those of ``blocks`` the tree adopted. Where a
            block's tokens were cached already the old block stays and the new one
            is not adopted.

        Raises:
            EngineError: tokens and blocks do not correspond.
        """
        if len(tokens) != len(blocks) * self.block_tokens:
            raise EngineError(
                f"{len(tokens)} tokens are not {len(blocks)} blocks of {self.block_tokens}"
            )
        nodes: list[PrefixNode] = []
        adopted: list[int] = []
        if not blocks:
            return nodes, adopted
        node = self._roots.get(root)
        if node is None:
            node = self._roots[root] = PrefixNode(root, -1, (), -1, None)
        for key, block in zip(self._keys(tokens), blocks, strict=True):
            child = node.children.get(key)
            if child is None:
                child = PrefixNode(root, node.depth + 1, key, block, node)
                node.children[key] = child
                self._size += 1
                adopted.append(block)
            nodes.append(child)
            node = child
        self._touch(nodes)
        self._offer(node)
        return nodes, adopted

    def lock(self, node: PrefixNode) -> None:
        """Protect ``node`` and all before it from eviction; locks are counted.

        Raises:
            EngineError: the node was evicted.
        """
        if node.evicted:
            raise EngineError("an evicted prefix cannot be locked")
        for step in node.path():
            self._locked += step.locks == 0
            step.locks += 1

    def unlock(self, node: PrefixNode) -> None:
        """Undo one :meth:`lock`.

        Raises:
            EngineError: the path is not locked.
        """
        path = node.path()
        if any(step.locks < 1 for step in path):
            raise EngineError("a prefix is unlocked more often than it was locked")
        for step in path:
            step.locks -= 1
            self._locked -= step.locks == 0
        self._offer(node)

    def evict(self, count: int, cause: str = "pressure") -> list[int]:
        """Drop up to ``count`` blocks, least recently used leaves first; returns their blocks."""
        blocks: list[int] = []
        while len(blocks) < count and self._leaves:
            tick, _, node = heapq.heappop(self._leaves)
            if not self._evictable(node):
                continue
            if tick != node.tick:
                self._offer(node)
                continue
            blocks.append(self._remove(node, cause))
        return blocks

    def flush(self, root: bytes | None = None, cause: str = "flush") -> list[int]:
        """Drop every unlocked block, of one namespace or of all; returns their blocks."""
        blocks: list[int] = []
        for key in [root] if root is not None else list(self._roots):
            # Deepest first: a parent can go once its children are gone.
            for node in sorted(self._nodes(key), key=lambda n: -n.depth):
                if self._evictable(node):
                    blocks.append(self._remove(node, cause))
        return blocks

    def blocks(self) -> Iterator[int]:
        """Every block the tree names."""
        for root in self._roots:
            for node in self._nodes(root):
                yield node.block

    def check_integrity(self) -> None:
        """Links, counts, locks and the candidate list agree.

        Raises:
            EngineError: naming the first contradiction.
        """
        nodes = [node for root in self._roots for node in self._nodes(root)]
        if len(nodes) != self._size:
            raise EngineError(f"prefix tree: counts {self._size} blocks but holds {len(nodes)}")
        if len({node.block for node in nodes}) != len(nodes):
            raise EngineError("prefix tree: a block is cached under two prefixes")
        if sum(node.locks > 0 for node in nodes) != self._locked:
            raise EngineError(f"prefix tree: count of locked blocks {self._locked} is wrong")
        offered = {id(node) for _, _, node in self._leaves}
        for node in nodes:
            place = f"prefix tree: block {node.block} at depth {node.depth}"
            if len(node.tokens) != self.block_tokens or node.evicted:
                raise EngineError(f"{place} is not a whole live block")
            if node.locks < 0 or sum(c.locks for c in node.children.values()) > node.locks:
                raise EngineError(f"{place} has fewer locks than its children")
            if node.parent is None or node.parent.children.get(node.tokens) is not node:
                raise EngineError(f"{place} is not its parent's child")
            if self._evictable(node) and id(node) not in offered:
                raise EngineError(f"{place} could be evicted but is in no candidate list")
        if any(not root.children for root in self._roots.values()):
            raise EngineError("prefix tree: an empty namespace was kept")

    def _keys(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        size = self.block_tokens
        for start in range(0, len(tokens) - size + 1, size):
            yield tuple(tokens[start : start + size])

    def _nodes(self, root: bytes) -> Iterator[PrefixNode]:
        top = self._roots.get(root)
        pending = list(top.children.values()) if top else []
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())

    def _touch(self, nodes: Sequence[PrefixNode]) -> None:
        self._clock += 1
        for node in nodes:
            node.tick = self._clock

    @staticmethod
    def _evictable(node: PrefixNode) -> bool:
        return not (node.evicted or node.locks or node.children) and node.depth >= 0

    def _offer(self, node: PrefixNode) -> None:
        """Note that ``node`` may be evictable; stale notes are dropped when popped."""
        if not self._evictable(node):
            return
        if len(self._leaves) > 2 * self._size + 64:
            latest = {id(n): n for _, _, n in self._leaves if self._evictable(n)}
            self._leaves = []
            for live in latest.values():
                self._note(live)
            heapq.heapify(self._leaves)
        self._note(node)

    def _note(self, node: PrefixNode) -> None:
        self._serial += 1
        heapq.heappush(self._leaves, (node.tick, self._serial, node))

    def _remove(self, node: PrefixNode, cause: str) -> int:
        parent = node.parent
        assert parent is not None
        del parent.children[node.tokens]
        node.evicted = True
        self._size -= 1
        if parent.depth >= 0:
            self._offer(parent)
        elif not parent.children:
            del self._roots[node.root]
        if self._on_evict is not None:
            self._on_evict(node, cause)
        return node.block
