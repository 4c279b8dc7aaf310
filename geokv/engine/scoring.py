"""What a model says at every token of a text, over a prefix whose KV somebody may have altered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from geokv.engine.model import LlamaModel
from geokv.engine.span import Span

Alter = Callable[[torch.Tensor], torch.Tensor]
"""KV ``[layers, 2, tokens, kv_heads, head_dim]`` → KV of the same shape and dtype."""

_BLOCK_TOKENS = 16
_AT_ONCE = 128


class Scorer:
    """One prefix, computed once; any number of suffixes and alterations after it.

    Args:
        prefix: as many whole blocks of 16 tokens as it fills are open to alteration; it
            must be a multiple of 16 tokens, so that the altered part is all of it.

    Raises:
        ValueError: it is not.
    """

    def __init__(self, model: LlamaModel, prefix: Sequence[int], longest: int) -> None:
        if not prefix or len(prefix) % _BLOCK_TOKENS:
            raise ValueError(f"prefix: must fill whole blocks of {_BLOCK_TOKENS} tokens")
        self._model = model
        self._start = len(prefix)
        blocks = self._start // _BLOCK_TOKENS
        self._pool = model.new_pool(blocks + -(-longest // _BLOCK_TOKENS), _BLOCK_TOKENS)
        self._table = self._pool.allocate(self._pool.blocks)
        self._prefix_blocks = self._table[:blocks]
        model.forward([Span(list(prefix), 0, self._table, logits=False)], self._pool)
        shape = model.config
        self.exact = torch.empty(
            shape.layers, 2, self._start, shape.kv_heads, shape.head_dim, dtype=model.dtype
        )
        self._pool.gather(self._prefix_blocks, self.exact)

    def logits(self, suffix: Sequence[int], alter: Alter | None = None) -> torch.Tensor:
        """float32 ``[len(suffix), vocab]``: what is expected after each token of ``suffix``.

        The suffix itself is computed exactly; only what it reads of the prefix is altered.
        """
        kv = self.exact if alter is None else alter(self.exact)
        self._pool.scatter(self._prefix_blocks, kv)
        rows = []
        for at in range(0, len(suffix), _AT_ONCE):
            # A span has logits after its last token only, so each token is a span of its own;
            # a layer stores the KV of all of them before any attends.
            spans = [
                Span([token], self._start + at + number, self._table)
                for number, token in enumerate(suffix[at : at + _AT_ONCE])
            ]
            rows.append(self._model.forward(spans, self._pool))
        return torch.cat(rows)
