"""Decoder-only Llama family over the paged pool, in plain torch.

RMSNorm, rotary embedding, grouped-query attention, SwiGLU; QK-norm and biases where
the checkpoint has them. One call computes a batch of spans, each a run of new tokens of
one sequence over that sequence's block table; the dense parts see all spans at once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import silu

from geokv.engine import rope
from geokv.engine.attention import attend
from geokv.engine.config import ModelConfig
from geokv.engine.pool import BlockPool
from geokv.engine.workspace import Workspace
from geokv.errors import EngineError


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


@dataclass(frozen=True)
class Span:
    """New tokens of one sequence.

    Args:
        tokens: ids to compute, at positions ``start … start + len(tokens) - 1``.
        start: tokens before them, whose KV the blocks hold already.
        table: the sequence's blocks in order; covers at least ``start + len(tokens)``.
        logits: whether those after the last token are wanted; a chunk of a prompt that
            is not its last needs none.
    """

    tokens: Sequence[int]
    start: int
    table: Sequence[int]
    logits: bool = True


@dataclass(frozen=True)
class _Placed:
    """A span's rows in the batch, its blocks and the pool slots of its new tokens."""

    rows: slice
    start: int
    table: torch.Tensor
    slots: torch.Tensor


class LlamaModel:
    """Weights and the forward pass; holds no sequence state.

    Scratch memory is reused between calls, so one instance computes one batch at a time.
    """

    def __init__(self, config: ModelConfig, weights: ModelWeights, fingerprint: str) -> None:
        self.config = config
        self.weights = weights
        self.fingerprint = fingerprint
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self._inverse = rope.inverse_frequencies(config, self.device)
        self._scratch = Workspace(self.dtype, self.device)

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
        placed = self._place(spans, pool)
        ids = torch.tensor([t for span in spans for t in span.tokens], device=self.device)
        positions = torch.cat(
            [torch.arange(s.start, s.start + len(s.tokens), device=self.device) for s in spans]
        )
        cosine, sine = rope.angles(self._inverse, positions, self.dtype)
        hidden = self._take("hidden", len(ids), self.config.hidden_size)
        torch.index_select(self.weights.embedding, 0, ids, out=hidden)
        for index, layer in enumerate(self.weights.layers):
            yield index
            hidden.add_(self._attention(index, layer, hidden, placed, pool, cosine, sine))
            hidden.add_(self._mlp(layer, hidden))
        wanted = zip(spans, placed, strict=True)
        last = hidden[[place.rows.stop - 1 for span, place in wanted if span.logits]]
        last = _rms_norm(last, self.weights.norm, self.config.rms_norm_eps)
        return (last @ self.weights.head.t()).float()

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        hidden: torch.Tensor,
        placed: Sequence[_Placed],
        pool: BlockPool,
        cosine: torch.Tensor,
        sine: torch.Tensor,
    ) -> torch.Tensor:
        """Attention output ``[n, hidden]``; the new tokens' KV is in the pool afterwards."""
        shape = self.config
        rows = hidden.shape[0]
        normed = _rms_norm(hidden, layer.input_norm, shape.rms_norm_eps)
        query = self._linear("query", normed, layer.query, layer.query_bias)
        key = self._linear("key", normed, layer.key, layer.key_bias)
        value = self._linear("value", normed, layer.value, layer.value_bias)
        query = query.view(rows, shape.heads, shape.head_dim)
        key = key.view(rows, shape.kv_heads, shape.head_dim)
        value = value.view(rows, shape.kv_heads, shape.head_dim)
        if layer.query_norm is not None and layer.key_norm is not None:
            query = _rms_norm(query, layer.query_norm, shape.rms_norm_eps)
            key = _rms_norm(key, layer.key_norm, shape.rms_norm_eps)
        query = rope.rotate(query, cosine, sine)
        key = rope.rotate(key, cosine, sine)
        mixed = self._take("mixed", rows, shape.heads, shape.head_dim)
        for span in placed:
            pool.write(index, span.slots, key[span.rows], value[span.rows])
            mixed[span.rows] = self._attend(index, span, query[span.rows], pool)
        return self._linear("projected", mixed.view(rows, -1), layer.out, layer.out_bias)

    def _attend(
        self, index: int, span: _Placed, query: torch.Tensor, pool: BlockPool
    ) -> torch.Tensor:
        block_shape = (pool.block_tokens, pool.kv_heads, pool.head_dim)
        keys = self._take("keys", len(span.table), *block_shape)
        values = self._take("values", len(span.table), *block_shape)
        pool.read(index, span.table, keys, values)
        context = span.start + query.shape[0]
        return attend(
            query, keys.flatten(0, 1)[:context], values.flatten(0, 1)[:context], span.start
        )

    def _mlp(self, layer: LayerWeights, hidden: torch.Tensor) -> torch.Tensor:
        normed = _rms_norm(hidden, layer.post_norm, self.config.rms_norm_eps)
        gate = self._linear("gate", normed, layer.gate, layer.gate_bias)
        up = self._linear("up", normed, layer.up, layer.up_bias)
        product = silu(gate, inplace=True).mul_(up)
        return self._linear("projected", product, layer.down, layer.down_bias)

    def _linear(
        self, name: str, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        out = self._take(name, rows.shape[0], weight.shape[0])
        torch.mm(rows, weight.t(), out=out)
        return out if bias is None else out.add_(bias)

    def _take(self, name: str, *shape: int) -> torch.Tensor:
        return self._scratch.take(name, *shape)

    def _place(self, spans: Sequence[Span], pool: BlockPool) -> list[_Placed]:
        placed: list[_Placed] = []
        row = 0
        size = pool.block_tokens
        for span in spans:
            stop = span.start + len(span.tokens)
            if not span.tokens or span.start < 0 or stop > len(span.table) * size:
                raise EngineError(
                    f"span of {len(span.tokens)} tokens from {span.start} does not fit "
                    f"{len(span.table)} blocks of {size}"
                )
            if not 0 <= min(span.tokens) <= max(span.tokens) < self.config.vocab_size:
                raise EngineError(
                    f"token ids must be in 0 … {self.config.vocab_size - 1}, "
                    f"got {min(span.tokens)} … {max(span.tokens)}"
                )
            used = -(-stop // size)
            table = torch.tensor(span.table[:used], dtype=torch.int64, device=self.device)
            positions = torch.arange(span.start, stop, device=self.device)
            slots = table[positions // size] * size + positions % size
            rows = slice(row, row + len(span.tokens))
            placed.append(_Placed(rows, span.start, table, slots))
            row = rows.stop
        if not placed:
            raise EngineError("an empty batch cannot be computed")
        return placed


def _rms_norm(rows: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise the last dimension in float32, whatever the dtype."""
    wide = rows.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(rows.dtype) * weight
