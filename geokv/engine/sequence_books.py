"""What sequences hold, and whether it adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from geokv.engine.pool import BlockPool
from geokv.engine.prefix import OnEvict, PrefixTree
from geokv.engine.room import BlockRoom, EngineStats
from geokv.engine.sequence import Sequence
from geokv.errors import EngineError


class SequenceBooks:
    """A pool, the tree of what is cached in it, and the open sequences.

    Attributes:
        on_room: called when a sequence has given blocks back.
        on_progress: called when promised KV has come a step further, or will not come.
    """

    def __init__(self, pool: BlockPool, on_evict: OnEvict | None = None) -> None:
        self.pool = pool
        self.tree = PrefixTree(pool.block_tokens, on_evict)
        self.on_room: Callable[[], None] | None = None
        self.on_progress: Callable[[], None] | None = None
        self._room = BlockRoom(self.pool, self.tree)
        self._open: set[Sequence] = set()
        self._counts: Counter[str] = Counter()

    @property
    def block_tokens(self) -> int:
        """Tokens per block."""
        return self.pool.block_tokens

    @property
    def promised_tokens(self) -> int:
        """Tokens that sequences were promised and that have not all come."""
        return sum(seq.arrival.tokens for seq in self._open if seq.arrival is not None)

    def flush(self, root: bytes | None = None) -> int:
        """Drop all cached blocks no sequence uses, of one namespace or all; how many."""
        return self._room.drop(self.tree.flush(root))

    def stats(self) -> EngineStats:
        """Blocks by state, and counters."""
        pinned = len({block for seq in self._open for block in seq.blocks})
        cached = sum(self.pool.references(block) == 1 for block in self.tree.blocks())
        return EngineStats(
            blocks=self.pool.blocks,
            blocks_free=self.pool.free,
            blocks_cached=cached,
            blocks_pinned=pinned,
            open_sequences=len(self._open),
            steps=self._counts["steps"],
            prefill_tokens=self._counts["prefill"],
            decode_tokens=self._counts["decode"],
            looked_up_tokens=self._counts["looked_up"],
            device_hit_tokens=self._counts["device_hit"],
            committed_tokens=self._counts["committed"],
            evicted_blocks=self._room.evicted,
            freed_blocks=self._counts["freed"],
        )

    def check_integrity(self) -> None:
        """Pool, tree and open sequences account for every block and reference (INV-5).

        Raises:
            EngineError: naming the first contradiction.
        """
        self.pool.check_integrity()
        self.tree.check_integrity()
        self._room.check_references(block for seq in self._open for block in seq.blocks)
        now = self.stats()
        if now.blocks_free + now.blocks_cached + now.blocks_pinned != now.blocks:
            raise EngineError(f"engine: free + cached + pinned is not all blocks: {now}")

    def _ready(
        self, seq: Sequence, what: str, reserved_ok: bool = False, promised_ok: bool = False
    ) -> None:
        if seq.closed or seq.keep_on_close is not None:
            raise EngineError(f"the sequence is closed: cannot {what}")
        if seq.busy:
            raise EngineError(f"the sequence is being computed: cannot {what}")
        promised = seq.arrival.tokens if promised_ok and seq.arrival is not None else 0
        if seq.reserved_tokens > promised and not reserved_ok:
            raise EngineError(
                f"{seq.reserved_tokens} reserved tokens are not filled: cannot {what}",
                "commit or roll back first",
            )
