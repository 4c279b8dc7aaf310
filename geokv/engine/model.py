"""Decoder-only Llama family over the paged pool, in plain torch.

RMSNorm, rotary embedding, grouped-query attention, SwiGLU; QK-norm and biases where
the checkpoint has them. One call computes a batch of spans, each a run of new tokens of
one sequence over that sequence's block table; the dense parts see all spans at once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn.functional import silu

from geokv.engine import rope
from geokv.engine.attention import Cached, attend, attend_together
from geokv.engine.config import ModelConfig
from geokv.engine.dense import Dense
from geokv.engine.pool import BlockPool
from geokv.engine.span import Batch, Context, Span


@dataclass(frozen=True)
class LayerWeights:
    """One layer; matrices are ``[out, in]`` as in checkpoints, absent parts are None."""

    input_norm: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    out: torch.Tensor
    post_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    query_bias: torch.Tensor | None = None
    key_bias: torch.Tensor | None = None
    value_bias: torch.Tensor | None = None
    out_bias: torch.Tensor | None = None
    gate_bias: torch.Tensor | None = None
    up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None


@dataclass(frozen=True)
class ModelWeights:
    """``embedding`` and ``head`` are ``[vocab, hidden]`` (one tensor when tied)."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor


#: Single queries attend to a prefix of so many tokens together.
SHARE_FROM_TOKENS = 256


class _Step(NamedTuple):
    """What every layer of one call sees."""

    batch: Batch
    pool: BlockPool
    cosine: torch.Tensor
    sine: torch.Tensor


class LlamaModel:
    """Weights and the forward pass; holds no sequence state.

    Scratch memory is reused between calls, so one instance computes one batch at a time.

    Args:
        masked: attend by torch's own choice of kernel and a mask; None: unless on a CPU.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        fingerprint: str,
        masked: bool | None = None,
    ) -> None:
        self.config = config
        self.weights = weights
        self.fingerprint = fingerprint
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self._masked = self.device.type != "cpu" if masked is None else masked
        self._inverse = rope.inverse_frequencies(config, self.device)
        self._dense = Dense(self.dtype, self.device)

    @property
    def scratch_bytes(self) -> int:
        """Memory held for reuse between calls."""
        return self._dense.scratch_bytes

    def new_pool(self, blocks: int, block_tokens: int = 16) -> BlockPool:
        """A pool of this model's KV shape."""
        shape = self.config
        return BlockPool(
            shape.layers,
            blocks,
            block_tokens,
            shape.kv_heads,
            shape.head_dim,
            self.dtype,
            self.device,
        )

    def forward(self, spans: Sequence[Span], pool: BlockPool) -> torch.Tensor:
        """Compute ``spans``, store their KV in the pool.

        Returns:
            float32 ``[rows, vocab]``, the logits after the last token of each span that
            wants them, in order.
        """
        walk = self.walk(spans, pool)
        while True:
            try:
                next(walk)
            except StopIteration as end:
                logits: torch.Tensor = end.value
                return logits

    @torch.inference_mode()
    def walk(self, spans: Sequence[Span], pool: BlockPool) -> Generator[int, None, torch.Tensor]:
        """:meth:`forward` one layer at a time.

        Yields each layer's index *before* that layer reads the pool, so whoever drives
        it can wait for the layer's cached KV to arrive, or change what is recomputed.
        """
        share_from = None if self._masked else SHARE_FROM_TOKENS
        batch = Batch(spans, pool, self.config.vocab_size, share_from)
        angles = rope.angles(self._inverse, batch.positions, self.dtype)
        step = _Step(batch, pool, *angles)
        hidden = self._take("hidden", batch.rows, self.config.hidden_size)
        torch.index_select(self.weights.embedding, 0, batch.ids, out=hidden)
        for index, layer in enumerate(self.weights.layers):
            yield index
            self._attention(index, layer, hidden, step)
            self._mlp(layer, hidden)
        return self._logits(hidden[batch.wanted])

    def _logits(self, last: torch.Tensor) -> torch.Tensor:
        weights = self.weights
        normed = self._dense.rms_norm(last, weights.norm, self.config.rms_norm_eps, last)
        logits = last.new_empty(last.shape[0], weights.head.shape[0])
        return self._dense.linear(normed, weights.head, None, logits).float()

    def _attention(
        self, index: int, layer: LayerWeights, hidden: torch.Tensor, step: _Step
    ) -> None:
        """Add to ``hidden`` ``[n, hidden]``; the new tokens' KV is in the pool afterwards."""
        shape, batch = self.config, step.batch
        query, key, value = self._project(layer, hidden, step)
        step.pool.write(index, batch.slots, key, value)
        mixed = self._take("mixed", batch.rows, shape.heads, shape.head_dim)
        for work in batch.works:
            cached = self._cached(index, work.context, step.pool)
            attend(query[work.rows], cached, work.start, mixed[work.rows], self._masked)
        for shared in batch.shared:
            prefix = self._cached(index, shared.prefix, step.pool, "prefix")
            own = (self._cached(index, context, step.pool) for context in shared.own)
            mixed[shared.rows] = attend_together(query[shared.rows], prefix, own)
        self._dense.add_linear(mixed.flatten(1), layer.out, layer.out_bias, hidden)

    def _project(
        self, layer: LayerWeights, hidden: torch.Tensor, step: _Step
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries and keys, and values, each ``[n, heads, head_dim]``."""
        shape, rows, dense = self.config, hidden.shape[0], self._dense
        normed = self._take("normed", *hidden.shape)
        dense.rms_norm(hidden, layer.input_norm, shape.rms_norm_eps, normed)
        heads = [shape.heads, shape.kv_heads, shape.kv_heads]
        # One buffer for all three, so that queries and keys are rotated together.
        wide = self._take("projections", rows, sum(heads), shape.head_dim)
        query, key, value = torch.split(wide, heads, dim=1)
        for out, weight, bias in (
            (query, layer.query, layer.query_bias),
            (key, layer.key, layer.key_bias),
            (value, layer.value, layer.value_bias),
        ):
            dense.linear(normed, weight, bias, out.flatten(1))
        if layer.query_norm is not None and layer.key_norm is not None:
            dense.rms_norm(query, layer.query_norm, shape.rms_norm_eps, query)
            dense.rms_norm(key, layer.key_norm, shape.rms_norm_eps, key)
        turned = wide[:, : shape.heads + shape.kv_heads]
        half = self._take("half", rows, turned.shape[1], shape.head_dim // 2)
        rope.rotate_(turned, step.cosine, step.sine, half)
        return query, key, value

    def _cached(self, index: int, context: Context, pool: BlockPool, name: str = "own") -> Cached:
        """The keys and values of a layer; valid until the name's next use."""
        if context.first is not None:
            keys, values = pool.view(index, context.first, len(context.blocks))
        else:
            shape = (2, len(context.blocks) * pool.block_tokens, pool.kv_heads, pool.head_dim)
            keys, values = self._take(name, *shape)
            pool.read(index, context.blocks, keys, values)
        return keys[: context.tokens], values[: context.tokens]

    def _mlp(self, layer: LayerWeights, hidden: torch.Tensor) -> None:
        shape, rows, linear = self.config, hidden.shape[0], self._dense.linear
        normed = self._take("normed", *hidden.shape)
        self._dense.rms_norm(hidden, layer.post_norm, shape.rms_norm_eps, normed)
        gate = self._take("gate", rows, shape.intermediate_size)
        up = self._take("up", rows, shape.intermediate_size)
        linear(normed, layer.gate, layer.gate_bias, gate)
        linear(normed, layer.up, layer.up_bias, up)
        product = silu(gate, inplace=True).mul_(up)
        self._dense.add_linear(product, layer.down, layer.down_bias, hidden)

    def _take(self, name: str, *shape: int) -> torch.Tensor:
        return self._dense.take(name, *shape)
