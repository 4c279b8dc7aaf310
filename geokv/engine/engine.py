"""The serving engine of one worker: a model over sequences, one step of a batch at a time.

Who is computed when is the scheduler's business (:mod:`geokv.engine.scheduler`).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from functools import partial

import torch

from geokv.engine.compute import Compute, Stage, StepLoad
from geokv.engine.pool import BlockPool
from geokv.engine.prefix import OnEvict
from geokv.engine.protocol import Model
from geokv.engine.sequence import Sequence, Slice
from geokv.engine.sequences import Sequences
from geokv.engine.span import Span
from geokv.errors import EngineError


class Engine(Sequences):
    """Owns the pool and the prefix tree of one worker, and computes into them.

    Args:
        blocks: size of the pool.
        compute: what computing costs; see :mod:`geokv.engine.compute`.
        on_evict: called with each evicted prefix node and the cause.
    """

    def __init__(
        self,
        model: Model,
        blocks: int,
        compute: Compute,
        block_tokens: int = 16,
        on_evict: OnEvict | None = None,
    ) -> None:
        shape = model.config
        pool = model.new_pool(blocks, block_tokens)
        super().__init__(pool, shape.max_tokens, shape.vocab_size, shape.name, on_evict)
        self.model = model
        self.compute = compute

    async def step(self, slices: Seq[Slice], follows: bool = False) -> torch.Tensor:
        """Compute one step of a batch.

        Where KV is promised and not all here, the step goes layer by layer and waits
        for each group.

        Args:
            slices: at most one per sequence.
            follows: as of :meth:`Compute.step`.

        Returns:
            float32 ``[rows, vocab]``: the logits of each slice that is its sequence's
            last, in order.

        Raises:
            NoRoom: a sequence has no blocks for its slice; make room first.
            EngineError: a slice of nothing, of too much, or of a sequence that is closed,
                being filled or in the step twice; or promised KV did not come, or the
                step was interrupted while it waited. Nothing has been computed.
        """
        for part in slices:
            self._ready(part.seq, "compute", promised_ok=True)
            if not 1 <= part.tokens <= part.seq.remaining_tokens:
                raise EngineError(
                    f"{part.tokens} tokens cannot be computed: "
                    f"{part.seq.remaining_tokens} of {len(part.seq.tokens)} are left"
                )
            self.make_room(part.seq, part.start + part.tokens)
        if len({id(part.seq) for part in slices}) != len(slices):
            raise EngineError("a sequence is in the step twice")
        spans = [
            Span(
                part.seq.tokens[part.start : part.start + part.tokens],
                part.start,
                part.seq.blocks,
                part.is_last,
            )
            for part in slices
        ]
        load = StepLoad(
            tuple((part.tokens, part.start) for part in slices if not part.is_decode),
            tuple(part.start + 1 for part in slices if part.is_decode),
            sum(part.is_last for part in slices),
        )
        done = False
        for part in slices:
            part.seq.busy = True
        try:
            logits = await self._run(spans, load, [part.seq for part in slices], follows)
            done = True
        finally:
            for part in slices:
                self._computed(part, done)
        self._counts["steps"] += 1
        self._counts["prefill"] += sum(new for new, _ in load.prefill)
        self._counts["decode"] += len(load.decode)
        return logits

    async def _run(
        self, spans: Seq[Span], load: StepLoad, seqs: Seq[Sequence], follows: bool
    ) -> torch.Tensor:
        arrivals = [seq.arrival for seq in seqs if seq.arrival is not None]
        if not arrivals:
            return await self.compute.step(
                lambda: self.model.forward(spans, self.pool), load, follows
            )
        walk = _Walk(self.model, spans, self.pool)
        stages = []
        for group, layer in enumerate(arrivals[0].layers):

            async def ready(group: int = group) -> None:
                for arrival in arrivals:
                    await arrival.wait(group)

            stages.append(Stage(ready, partial(walk.to, layer)))
        await self.compute.stages(stages, load)
        return walk.logits()

    def _computed(self, part: Slice, done: bool) -> None:
        seq = part.seq
        seq.busy = False
        if done:
            seq.computed_tokens += part.tokens
        if seq.keep_on_close is not None:
            self._finish(seq, seq.keep_on_close)


class _Walk:
    """A forward pass that stops between layers."""

    def __init__(self, model: Model, spans: Seq[Span], pool: BlockPool) -> None:
        self._layers = model.walk(spans, pool)
        self._at = -1
        self._logits: torch.Tensor | None = None

    def to(self, layer: int) -> None:
        """Compute every layer before ``layer``."""
        while self._at < layer and self._logits is None:
            try:
                self._at = next(self._layers)
            except StopIteration as end:
                self._logits = end.value

    def logits(self) -> torch.Tensor:
        """The end of the pass, float32 ``[rows, vocab]``."""
        while self._logits is None:
            self.to(self._at + 1)
        return self._logits
