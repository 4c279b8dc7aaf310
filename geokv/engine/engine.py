"""The serving engine of one worker: sequences over a paged pool and a prefix tree.

One sequence is computed at a time. The model takes a batch of spans already, so that
continuous batching replaces :meth:`Engine.prefill` and :meth:`Engine.decode` and
nothing below them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Seq

import torch

from geokv.engine.compute import Compute
from geokv.engine.model import LlamaModel, Span
from geokv.engine.prefix import OnEvict, PrefixTree
from geokv.engine.room import BlockRoom, EngineStats
from geokv.engine.sequence import Sequence
from geokv.errors import EngineError

#: Prompt tokens per forward pass: bounds temporaries, not what is charged.
PREFILL_CHUNK_TOKENS = 1024


class Engine:
    """Owns the pool and the prefix tree of one worker.

    Args:
        blocks: size of the pool.
        compute: what computing costs; see :mod:`geokv.engine.compute`.
        chunk_tokens: prompt tokens per forward pass.
        on_evict: called with each evicted prefix node and the cause.
    """

    def __init__(
        self,
        model: LlamaModel,
        blocks: int,
        compute: Compute,
        block_tokens: int = 16,
        chunk_tokens: int = PREFILL_CHUNK_TOKENS,
        on_evict: OnEvict | None = None,
    ) -> None:
        if chunk_tokens < 1:
            raise EngineError(f"chunk_tokens must be ≥ 1, got {chunk_tokens}")
        self.model = model
        self.compute = compute
        self.pool = model.new_pool(blocks, block_tokens)
        self.tree = PrefixTree(block_tokens, on_evict)
        self._room = BlockRoom(self.pool, self.tree)
        self._chunk_tokens = chunk_tokens
        self._open: set[Sequence] = set()
        self._counts = dict.fromkeys(("prefill", "decode", "device_hit", "committed", "freed"), 0)

    @property
    def block_tokens(self) -> int:
        """Tokens per block."""
        return self.pool.block_tokens

    def lookup(self, tokens: Seq[int], root: bytes) -> int:
        """Tokens of the prompt that a sequence opened now would find here; changes nothing."""
        usable = self._reusable(len(tokens))
        return self.block_tokens * len(self.tree.match(root, tokens[:usable], touch=False))

    def open(self, tokens: Seq[int], root: bytes, reuse: bool = True) -> Sequence:
        """Start a sequence; cached blocks of its prefix are shared and locked.

        At least one token always remains to be computed, for its logits.

        Args:
            root: opaque namespace (tenant, model, …); prefixes never cross namespaces.
            reuse: False ignores what is cached.

        Raises:
            EngineError: an empty prompt, one the model has no room to answer, or an
                unknown token.
        """
        limit = self.model.config.max_tokens
        if not tokens:
            raise EngineError("the prompt has no tokens")
        if len(tokens) >= limit:
            raise EngineError(
                f"the prompt has {len(tokens)} tokens, {self.model.config.name} takes "
                f"{limit - 1} and an answer"
            )
        vocab = self.model.config.vocab_size
        if min(tokens) < 0 or max(tokens) >= vocab:
            raise EngineError(
                f"token ids must be in 0 … {vocab - 1}, got {min(tokens)} … {max(tokens)}"
            )
        seq = Sequence(list(tokens), root, len(tokens))
        if reuse:
            nodes = self.tree.match(root, seq.tokens[: self._reusable(len(tokens))])
            if nodes:
                seq.blocks = [node.block for node in nodes]
                self.pool.retain(seq.blocks)
                self.tree.lock(nodes[-1])
                seq.locked = nodes[-1]
                seq.device_tokens = seq.computed_tokens = len(nodes) * self.block_tokens
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
        used = -(-seq.computed_tokens // self.block_tokens)
        twin.blocks = seq.blocks[:used]
        twin.computed_tokens = seq.computed_tokens
        twin.device_tokens = seq.computed_tokens
        twin.logits = seq.logits
        self.pool.retain(twin.blocks)
        if seq.locked is not None:
            self.tree.lock(seq.locked)
            twin.locked = seq.locked
        self._open.add(twin)
        return twin

    def reserve(self, seq: Sequence, tokens: int) -> list[int]:
        """Blocks for the next ``tokens`` tokens, to be filled from outside.

        Args:
            tokens: a multiple of ``block_tokens``; may follow an earlier reservation.

        Raises:
            EngineError: the sequence is not at a block boundary, no prompt token would
                be left to compute, or there is no room.
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
        seq.computed_tokens += tokens
        seq.committed_tokens += tokens
        self._counts["committed"] += tokens

    def rollback(self, seq: Sequence) -> int:
        """Give back reserved blocks that were not committed; returns how many.

        A sequence that is closed has none.
        """
        if seq.closed or not seq.reserved_tokens:
            return 0
        seq.reserved_tokens = 0
        keep = -(-seq.computed_tokens // self.block_tokens)
        returned = seq.blocks[keep:]
        del seq.blocks[keep:]
        self._counts["freed"] += self.pool.release(returned)
        return len(returned)

    async def prefill(self, seq: Sequence) -> torch.Tensor:
        """Compute all tokens not yet in the pool.

        Returns:
            float32 ``[vocab]``, the logits after the last prompt token.

        Raises:
            EngineError: nothing is left to compute, blocks are reserved but not
                committed, or there is no room. The sequence can then still be closed.
        """
        self._ready(seq, "prefill")
        new, cached, stop = seq.remaining_tokens, seq.computed_tokens, len(seq.tokens)
        if new < 1:
            raise EngineError("every token of the sequence is computed already; decode instead")
        self._room.cover(seq.blocks, stop)
        self._room.own(seq.blocks, cached)

        def work() -> torch.Tensor:
            logits = None
            for start in range(cached, stop, self._chunk_tokens):
                part = seq.tokens[start : min(start + self._chunk_tokens, stop)]
                logits = self.model.forward([Span(part, start, seq.blocks)], self.pool)
            assert logits is not None
            return logits[0]

        logits = await self._run(seq, lambda: self.compute.prefill(work, new, cached))
        seq.computed_tokens, seq.logits = stop, logits
        self._counts["prefill"] += new
        return logits

    async def decode(self, seq: Sequence, token: int) -> torch.Tensor:
        """Append ``token``, compute it and return the logits after it, float32 ``[vocab]``.

        Raises:
            EngineError: the prompt is not computed, the model's length is reached or
                there is no room; the sequence is then as before.
        """
        self._ready(seq, "decode")
        position = len(seq.tokens)
        if seq.computed_tokens != position:
            raise EngineError(f"{seq.remaining_tokens} tokens are not computed; prefill first")
        if position >= self.model.config.max_tokens:
            raise EngineError(f"the sequence has reached the model's {position} tokens")
        self._room.cover(seq.blocks, position + 1)
        self._room.own(seq.blocks, position)

        def work() -> torch.Tensor:
            return self.model.forward([Span([token], position, seq.blocks)], self.pool)[0]

        logits = await self._run(seq, lambda: self.compute.decode(work, [position + 1]))
        seq.tokens.append(token)
        seq.computed_tokens, seq.logits = position + 1, logits
        self._counts["decode"] += 1
        return logits

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
            prefill_tokens=self._counts["prefill"],
            decode_tokens=self._counts["decode"],
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

    def _reusable(self, tokens: int) -> int:
        """Whole-block tokens of a prompt that leave at least one to compute."""
        return (tokens - 1) // self.block_tokens * self.block_tokens

    def _ready(self, seq: Sequence, what: str, reserved_ok: bool = False) -> None:
        if seq.closed or seq.keep_on_close is not None:
            raise EngineError(f"the sequence is closed: cannot {what}")
        if seq.busy:
            raise EngineError(f"the sequence is being computed: cannot {what}")
        if seq.reserved_tokens and not reserved_ok:
            raise EngineError(
                f"{seq.reserved_tokens} reserved tokens are not filled: cannot {what}",
                "commit or roll back first",
            )

    async def _run(self, seq: Sequence, job: Callable[[], Awaitable[torch.Tensor]]) -> torch.Tensor:
        seq.busy = True
        try:
            return await job()
        finally:
            seq.busy = False
            if seq.keep_on_close is not None:
                self._finish(seq, seq.keep_on_close)

    def _finish(self, seq: Sequence, keep: bool) -> None:
        seq.closed = True
        self._open.discard(seq)
        whole = seq.computed_tokens // self.block_tokens if keep else 0
        _, adopted = self.tree.insert(
            seq.root, seq.tokens[: whole * self.block_tokens], seq.blocks[:whole]
        )
        self.pool.retain(adopted)
        self._counts["freed"] += self.pool.release(seq.blocks)
        seq.blocks = []
        if seq.locked is not None:
            self.tree.unlock(seq.locked)
            seq.locked = None
