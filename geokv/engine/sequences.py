"""Sequences over a paged pool and a prefix tree: who holds which block.

Everything here is bookkeeping and costs no device time; :class:`~geokv.engine.engine.Engine`
adds the computing.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from geokv.engine.filling import Filling
from geokv.engine.pool import BlockPool
from geokv.engine.prefix import OnEvict
from geokv.engine.sequence import Sequence
from geokv.errors import EngineError


class Sequences(Filling):
    """Open sequences, the pool their KV lies in and the tree of what is cached there.

    Args:
        pool: used by nobody else.
        max_tokens: of one sequence, by the model.
        vocab_size: token ids are below it.
        name: of the model, for messages.
        on_evict: called with each evicted prefix node and the cause.
    """

    def __init__(
        self,
        pool: BlockPool,
        max_tokens: int,
        vocab_size: int,
        name: str,
        on_evict: OnEvict | None = None,
    ) -> None:
        super().__init__(pool, on_evict)
        self._max_tokens = max_tokens
        self._vocab_size = vocab_size
        self._name = name

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

    # -- inside ----------------------------------------------------------------

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
