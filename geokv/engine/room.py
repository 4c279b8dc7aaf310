"""Room in the pool for sequences: blocks are allocated, cached prefixes make way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from geokv.engine.pool import BlockPool
from geokv.engine.prefix import PrefixTree
from geokv.errors import EngineError, NoRoom


@dataclass(frozen=True)
class EngineStats:
    """Where the blocks are, and counters since the engine was made.

    ``blocks_free + blocks_cached + blocks_pinned = blocks`` (INV-5); pinned blocks
    belong to open sequences, cached ones to the prefix tree alone.
    """

    blocks: int
    blocks_free: int
    blocks_cached: int
    blocks_pinned: int
    open_sequences: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    looked_up_tokens: int
    device_hit_tokens: int
    committed_tokens: int
    evicted_blocks: int
    freed_blocks: int


class BlockRoom:
    """Hands out blocks of ``pool`` and evicts from ``tree``, which holds a reference each."""

    def __init__(self, pool: BlockPool, tree: PrefixTree) -> None:
        self._pool = pool
        self._tree = tree
        #: Cached blocks given up so far.
        self.evicted = 0

    @property
    def available(self) -> int:
        """Blocks a sequence could get now: free ones, and cached ones nobody uses."""
        return self._pool.free + self._tree.size - self._tree.locked

    def cover(self, blocks: list[int], tokens: int) -> None:
        """Extend ``blocks`` until they hold ``tokens`` tokens.

        Raises:
            NoRoom: not enough blocks, even after eviction; nothing is changed.
        """
        wanted = -(-tokens // self._pool.block_tokens) - len(blocks)
        if wanted > 0:
            self._make(wanted)
            blocks.extend(self._pool.allocate(wanted))

    def own(self, blocks: list[int], position: int) -> None:
        """Before writing at ``position`` inside a block, replace a shared block by a copy.

        Raises:
            NoRoom: no block for the copy.
        """
        index, offset = divmod(position, self._pool.block_tokens)
        if offset and self._pool.references(blocks[index]) > 1:
            self._make(1)
            blocks[index] = self._pool.writable(blocks[index])

    def drop(self, evicted: list[int]) -> int:
        """Release blocks that left the tree; returns how many."""
        self._pool.release(evicted)
        self.evicted += len(evicted)
        return len(evicted)

    def check_references(self, used: Iterable[int]) -> None:
        """Every reference belongs to the tree or is one of ``used``.

        Raises:
            EngineError: naming the first block that does not add up.
        """
        expected = [0] * self._pool.blocks
        for block in self._tree.blocks():
            expected[block] += 1
        for block in used:
            expected[block] += 1
        for block, owners in enumerate(expected):
            if self._pool.references(block) != owners:
                raise EngineError(
                    f"engine: block {block} has {self._pool.references(block)} references, "
                    f"tree and sequences account for {owners}"
                )

    def _make(self, wanted: int) -> None:
        missing = wanted - self._pool.free
        if missing <= 0:
            return
        # Nothing is evicted for a request that cannot be met anyway.
        evictable = self._tree.size - self._tree.locked
        if missing > evictable:
            raise NoRoom(
                f"no room: {wanted} blocks wanted, {self._pool.free} free and {evictable} "
                f"evictable of {self._pool.blocks}",
                "close sequences, send shorter prompts or give the worker more blocks",
            )
        self.drop(self._tree.evict(missing))
