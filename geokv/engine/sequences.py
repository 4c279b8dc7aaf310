"""Sequences over a paged pool and a prefix tree: who holds which block.

Everything here is bookkeeping and costs no device time; :class:`~geokv.engine.engine.Engine`
adds the computing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Seq

from geokv.engine.arrival import Arrival
from geokv.engine.pool import BlockPool
from geokv.engine.prefix import OnEvict, PrefixTree
from geokv.engine.room import BlockRoom, EngineStats
from geokv.engine.sequence import Sequence
from geokv.errors import EngineError


class Sequences:
    """Open sequences, the pool their KV lies in and the tree of what is cached there.

    Args:
        pool: used by nobody else.
        max_tokens: of one sequence, by the model.
        vocab_size: token ids are below it.
        name: of the model, for messages.
        on_evict: called with each evicted prefix node and the cause.

    Attributes:
        on_room: called when a sequence has given blocks back.
        on_progress: called when promised KV has come a step further, or will not come.
    """

    def __init__(
        self,
        pool: BlockPool,
        max_tokens: int,
        vocab_size: int,
        name: str,
        on_evict: OnEvict | None = None,
    ) -> None:
        self.pool = pool
        self.tree = PrefixTree(pool.block_tokens, on_evict)
        self.on_room: Callable[[], None] | None = None
        self.on_progress: Callable[[], None] | None = None
        self._room = BlockRoom(self.pool, self.tree)
        self._max_tokens = max_tokens
        self._vocab_size = vocab_size
        self._name = name
        self._open: set[Sequence] = set()
        self._counts: Counter[str] = Counter()

    @property
    def block_tokens(self) -> int:
        """Tokens per block."""
        return self.pool.block_tokens

    @property
    def available_blocks(self) -> int:
        """Blocks a sequence could get now: free ones, and cached ones nobody uses."""
        return self._room.available

    @property
    def promised_tokens(self) -> int:
        """Tokens that sequences were promised and that have not all come."""
        return sum(seq.arrival.tokens for seq in self._open if seq.arrival is not None)

    @property
    def limit_tokens(self) -> int:
        """Tokens of one sequence at most, prompt and answer: what model and pool allow."""
        return min(self._max_tokens, self.pool.blocks * self.block_tokens)

    def check_prompt(self, tokens: Seq[int]) -> None:
        """Refuse what could never be computed here.

        Raises:
            EngineError: an empty prompt, one that model or pool have no room to answer,
                or an unknown token.
        """
        if not tokens:
            raise EngineError("the prompt has no tokens")
        limit = self.limit_tokens
        if len(tokens) >= limit:
            what = (
                self._name
                if limit == self._max_tokens
                else f"this worker's pool of {self.pool.blocks} blocks"
            )
            raise EngineError(
                f"the prompt has {len(tokens)} tokens, {what} takes {limit - 1} and an answer"
            )
        vocab = self._vocab_size
        if min(tokens) < 0 or max(tokens) >= vocab:
            raise EngineError(
                f"token ids must be in 0 … {vocab - 1}, got {min(tokens)} … {max(tokens)}"
            )

    def lookup(self, tokens: Seq[int], root: bytes) -> int:
        """Tokens of the prompt that a sequence opened now would find here; changes nothing."""
        usable = self._reusable(len(tokens))
        return self.block_tokens * len(self.tree.match(root, tokens[:usable], touch=False))

    def shortfall(self, tokens: Seq[int], root: bytes, reuse: bool = True) -> int:
        """Blocks that would be missing if ``tokens`` were opened with room for all of them now.

        Negative: so many would be left. Cached blocks it shares need no room, but cannot
        be evicted to make some either.
        """
        usable = self._reusable(len(tokens)) if reuse else 0
        nodes = self.tree.match(root, tokens[:usable], touch=False)
        evictable = sum(node.locks == 0 for node in nodes)
        missing = self._blocks_of(len(tokens)) - len(nodes)
        return missing - (self._room.available - evictable)

    # -- a sequence's life -----------------------------------------------------

    def open(self, tokens: Seq[int], root: bytes, reuse: bool = True) -> Sequence:
        """Start a sequence; cached blocks of its prefix are shared and locked.

        At least one token always remains to be computed, for its logits.

        Args:
            root: opaque namespace (tenant, model, …); prefixes never cross namespaces.
            reuse: False ignores what is cached.

        Raises:
            EngineError: as :meth:`check_prompt`.
        """
        self.check_prompt(tokens)
        seq = Sequence(list(tokens), root, len(tokens))
        if reuse:
            seq.device_tokens = self._share(seq)
            self._counts["looked_up"] += len(tokens)
            self._counts["device_hit"] += seq.device_tokens
        self._open.add(seq)
        return seq

    def fork(self, seq: Sequence) -> Sequence:
        """A second sequence with the same tokens that shares every block until it writes.

        Raises:
            EngineError: the sequence is closed, being computed or being filled.
        """
        self._ready(seq, "fork")
        twin = Sequence(list(seq.tokens), seq.root, seq.prompt_tokens)
        twin.blocks = seq.blocks[: self._blocks_of(seq.computed_tokens)]
        twin.computed_tokens = twin.device_tokens = seq.computed_tokens
        self.pool.retain(twin.blocks)
        if seq.locked is not None:
            self.tree.lock(seq.locked)
            twin.locked = seq.locked
        self._open.add(twin)
        return twin

    def append(self, seq: Sequence, token: int) -> None:
        """Add one token, to be computed next.

        Raises:
            EngineError: an unknown token, or the sequence is closed, being computed or
                as long as model and pool allow.
        """
        self._ready(seq, "append")
        if not 0 <= token < self._vocab_size:
            raise EngineError(f"token ids must be in 0 … {self._vocab_size - 1}, got {token}")
        if len(seq.tokens) >= self.limit_tokens:
            raise EngineError(f"the sequence has reached its {self.limit_tokens} tokens")
        seq.tokens.append(token)

    def publish(self, seq: Sequence) -> None:
        """Let others share the whole blocks computed so far, while the sequence goes on.

        Raises:
            EngineError: the sequence is closed, being computed or being filled.
        """
        self._ready(seq, "publish")
        whole = seq.computed_tokens // self.block_tokens
        if not whole:
            return
        nodes, adopted = self.tree.insert(
            seq.root, seq.tokens[: whole * self.block_tokens], seq.blocks[:whole]
        )
        self.pool.retain(adopted)
        self.tree.lock(nodes[-1])
        if seq.locked is not None:
            self.tree.unlock(seq.locked)
        seq.locked = nodes[-1]

    def preempt(self, seq: Sequence, keep: bool = True) -> None:
        """Take all blocks from a sequence that goes on later, by computing them again.

        What is valid stays findable in the prefix tree until somebody needs the room.
        After PagedAttention's recomputation (SOSP 2023, §4.5).

        Args:
            keep: False caches nothing.

        Raises:
            EngineError: the sequence is closed, being computed or being filled.
        """
        self._ready(seq, "pre-empt")
        self._give_back(seq, keep)

    def resume(self, seq: Sequence, reuse: bool = True) -> None:
        """Share again what is still cached of a pre-empted sequence.

        Raises:
            EngineError: the sequence still has blocks.
        """
        self._ready(seq, "resume")
        if seq.blocks:
            raise EngineError("the sequence was not pre-empted")
        if reuse:
            self._share(seq)

    def close(self, seq: Sequence, keep: bool = True) -> None:
        """End a sequence: valid whole blocks become cached prefix, the rest is freed.

        Safe at any time and more than once. While the device works on the sequence
        the blocks stay until that has ended.

        Args:
            keep: False caches nothing (the content is in doubt).
        """
        if seq.closed or seq.keep_on_close is not None:
            return
        if seq.busy:
            seq.keep_on_close = keep
            return
        self._finish(seq, keep)

    def make_room(self, seq: Sequence, tokens: int) -> None:
        """Blocks for the first ``tokens`` tokens of a sequence, the next to be written its own.

        Raises:
            NoRoom: not even by evicting what nobody uses.
        """
        self._ready(seq, "make room", reserved_ok=True)
        self._room.cover(seq.blocks, tokens)
        if seq.next_token < tokens:
            self._room.own(seq.blocks, seq.next_token)

    # -- KV from outside -------------------------------------------------------

    def reserve(self, seq: Sequence, tokens: int) -> list[int]:
        """Blocks for the next ``tokens`` tokens, to be filled from outside.

        Args:
            tokens: a multiple of ``block_tokens``; may follow an earlier reservation.

        Raises:
            EngineError: the sequence is not at a block boundary, or no prompt token
                would be left to compute.
            NoRoom: the pool has no more blocks.
        """
        self._ready(seq, "reserve", reserved_ok=True)
        size = self.block_tokens
        start = seq.computed_tokens + seq.reserved_tokens
        if tokens < size or tokens % size or start % size:
            raise EngineError(
                f"{tokens} tokens from {start} cannot be reserved: "
                f"only whole blocks of {size} can be filled from outside"
            )
        if start + tokens >= len(seq.tokens):
            raise EngineError(
                f"{tokens} tokens from {start} leave nothing of {len(seq.tokens)} to compute"
            )
        self._room.cover(seq.blocks, start + tokens)
        seq.reserved_tokens += tokens
        return seq.blocks[start // size : (start + tokens) // size]

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Count the first ``tokens`` reserved tokens as filled and valid.

        Raises:
            EngineError: fewer are reserved, or not whole blocks.
        """
        self._ready(seq, "commit", reserved_ok=True)
        if not 0 <= tokens <= seq.reserved_tokens or tokens % self.block_tokens:
            raise EngineError(
                f"{tokens} tokens cannot be committed: {seq.reserved_tokens} are reserved, "
                f"in blocks of {self.block_tokens}"
            )
        seq.reserved_tokens -= tokens
        self._count_committed(seq, tokens)

    def expect(self, seq: Sequence, layers: Seq[int]) -> Arrival:
        """Promise what is reserved, layer group by layer group: computing may begin behind it.

        Once complete it counts as committed; a failure or :meth:`rollback` takes the
        promise back.

        Args:
            layers: as of :class:`Arrival`.

        Raises:
            EngineError: nothing is reserved, or something is promised already.
        """
        self._ready(seq, "promise", reserved_ok=True)
        if not seq.reserved_tokens or seq.arrival is not None:
            raise EngineError("only what is reserved can be promised, and only once")
        seq.arrival = Arrival(seq.reserved_tokens, layers, lambda: self._progress(seq))
        return seq.arrival

    def retract(self, seq: Sequence) -> Arrival:
        """Take a promise back without saying yet what of it will be there.

        A step that waits for it is given up; the sequence is computed on when
        :meth:`rollback` says how much may be kept.

        Raises:
            EngineError: nothing is promised.
        """
        old = seq.arrival
        if old is None:
            raise EngineError("nothing was promised")
        seq.arrival = Arrival(old.tokens, old.layers, lambda: self._progress(seq))
        old.fail()
        return seq.arrival

    def rollback(self, seq: Sequence, keep: int = 0) -> None:
        """Nothing more will be filled from outside; the blocks are there to be computed.

        A step that waits for what was promised ends with an error.

        Args:
            keep: reserved tokens that are whole and valid all the same.

        Raises:
            EngineError: more than is reserved, or not whole blocks.
        """
        if not 0 <= keep <= seq.reserved_tokens or keep % self.block_tokens:
            raise EngineError(
                f"{keep} of {seq.reserved_tokens} reserved tokens cannot be kept, "
                f"only whole blocks of {self.block_tokens}"
            )
        arrival, seq.arrival = seq.arrival, None
        seq.reserved_tokens = 0
        self._count_committed(seq, keep)
        if arrival is not None:
            arrival.fail()

    # -- accounts --------------------------------------------------------------

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

    # -- inside ----------------------------------------------------------------

    def _progress(self, seq: Sequence) -> None:
        arrival = seq.arrival
        if arrival is not None and arrival.complete and not seq.closed:
            seq.arrival = None
            seq.reserved_tokens -= arrival.tokens
            self._count_committed(seq, arrival.tokens)
        if self.on_progress is not None:
            self.on_progress()

    def _count_committed(self, seq: Sequence, tokens: int) -> None:
        seq.computed_tokens += tokens
        seq.committed_tokens += tokens
        self._counts["committed"] += tokens

    def _reusable(self, tokens: int) -> int:
        """Whole-block tokens of a prompt that leave at least one to compute."""
        return (tokens - 1) // self.block_tokens * self.block_tokens

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def _share(self, seq: Sequence) -> int:
        """Begin a sequence with what is cached of it; how many tokens."""
        nodes = self.tree.match(seq.root, seq.tokens[: self._reusable(len(seq.tokens))])
        if nodes:
            seq.blocks = [node.block for node in nodes]
            self.pool.retain(seq.blocks)
            self.tree.lock(nodes[-1])
            seq.locked = nodes[-1]
            seq.computed_tokens = len(nodes) * self.block_tokens
        return seq.computed_tokens

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

    def _finish(self, seq: Sequence, keep: bool) -> None:
        seq.closed = True
        self._open.discard(seq)
        self._give_back(seq, keep)

    def _give_back(self, seq: Sequence, keep: bool) -> None:
        whole = seq.computed_tokens // self.block_tokens if keep else 0
        _, adopted = self.tree.insert(
            seq.root, seq.tokens[: whole * self.block_tokens], seq.blocks[:whole]
        )
        self.pool.retain(adopted)
        self._counts["freed"] += self.pool.release(seq.blocks)
        seq.blocks = []
        seq.computed_tokens = seq.reserved_tokens = 0
        seq.arrival = None
        if seq.locked is not None:
            self.tree.unlock(seq.locked)
            seq.locked = None
        if self.on_room is not None:
            self.on_room()
