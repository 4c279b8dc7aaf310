"""What an engine asks of whatever computes its tokens."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

import torch

from geokv.engine.config import ModelConfig
from geokv.engine.pool import BlockPool
from geokv.engine.span import Span


class Model(Protocol):
    """Computes spans over a paged pool; holds no sequence state.

    ``config`` gives the shape of its KV (layers, kv_heads, head_dim), its vocabulary and
    its length; ``fingerprint`` is equal where KV can be shared.
    """

    @property
    def config(self) -> ModelConfig:
        """Layers, heads, vocabulary and longest context."""

    @property
    def fingerprint(self) -> str:
        """Of weights and shape."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the KV."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes, and where its pools lie."""

    def new_pool(self, blocks: int, block_tokens: int = 16) -> BlockPool:
        """A pool of this model's KV shape."""
        ...

    def forward(self, spans: Sequence[Span], pool: BlockPool) -> torch.Tensor:
        """Compute ``spans``, store their KV in the pool.

        Returns:
            float32 ``[rows, vocab]``, the logits after the last token of each span that
            wants them, in order.
        """
        ...

    def walk(self, spans: Sequence[Span], pool: BlockPool) -> Generator[int, None, torch.Tensor]:
        """:meth:`forward` one layer at a time; yields each layer before it reads the pool."""
        ...
