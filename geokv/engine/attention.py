"""Causal attention of new tokens over a cached prefix, grouped queries, no mask tensor.

On the CPU the new tokens attend twice, to the prefix (no mask) and to themselves
(causal), and the two results are merged by their log-sum-exp, as FlashDecoding does. A
mask would be ``[new, context]`` floats per call. Decodes of several sequences that share
a prefix attend to it together (cascade inference: Hydragen, FlashInfer).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn.functional import scaled_dot_product_attention

_flash_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

Cached = tuple[torch.Tensor, torch.Tensor]
"""Keys and values, each ``[tokens, kv_heads, head_dim]``."""

Attended = tuple[torch.Tensor, torch.Tensor]
"""``[kv_heads, group, n, head_dim]`` and the log-sum-exp of the scores, without the last."""


def attend(
    queries: torch.Tensor, cached: Cached, start: int, out: torch.Tensor, masked: bool
) -> None:
    """Fill ``out`` ``[n, heads, head_dim]``.

    Args:
        queries: ``[n, heads, head_dim]`` of the tokens at ``start … start + n - 1``.
        cached: all ``start + n`` tokens so far.
        start: tokens before the first query.
        masked: by torch's own choice of kernel and a mask, which any device can.
    """
    grouped = _group(queries, cached[0].shape[1])
    keys, values = (_share(part, grouped.shape[1]) for part in cached)
    if masked:
        mixed = _attend_masked(grouped, keys, values, start)
    elif grouped.shape[2] == 1:
        mixed, _ = _attend_one(grouped, cached)
    else:
        mixed, lse = _flash_cpu(grouped, keys[:, :, start:], values[:, :, start:], 0.0, True)
        if start:
            past = _flash_cpu(grouped, keys[:, :, :start], values[:, :, :start], 0.0, False)
            mixed = _merge((mixed, lse), past)
    _group(out, cached[0].shape[1]).copy_(mixed)


def attend_together(queries: torch.Tensor, prefix: Cached, own: Iterable[Cached]) -> torch.Tensor:
    """Attention output ``[n, heads, head_dim]`` of the last tokens of ``n`` sequences. CPU only.

    Args:
        queries: ``[n, heads, head_dim]``, one of each sequence.
        prefix: the tokens that all begin with.
        own: the other tokens of each in turn, at least one.
    """
    grouped = _group(queries, prefix[0].shape[1])
    keys, values = (_share(part, grouped.shape[1]) for part in prefix)
    past = _flash_cpu(grouped, keys, values, 0.0, False)
    parts = [_attend_one(grouped[:, :, i : i + 1], cached) for i, cached in enumerate(own)]
    rest, rest_lse = (torch.cat(part, dim=2) for part in zip(*parts, strict=True))
    return _merge((rest, rest_lse), past).permute(2, 0, 1, 3).flatten(1, 2)


def _attend_one(query: torch.Tensor, cached: Cached) -> Attended:
    """A single token's attention, ``query`` ``[kv_heads, group, 1, head_dim]``."""
    if query.dtype != torch.float32:
        keys, values = (_share(part, query.shape[1]) for part in cached)
        mixed, lse = _flash_cpu(query, keys, values, 0.0, False)
        return mixed, lse
    # The group as rows: one product of a few rows reads the keys once, a quarter faster.
    # In bfloat16 it is slower.
    keys, values = (part.permute(1, 0, 2).unsqueeze(0) for part in cached)
    mixed, lse = _flash_cpu(query.squeeze(2).unsqueeze(0), keys, values, 0.0, False)
    return mixed[0].unsqueeze(2), lse[0].unsqueeze(2)


def _group(queries: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """``[kv_heads, group, n, head_dim]``.

    KV heads become the batch and the group of queries that shares one becomes the heads,
    so that sharing is a stride of zero and nothing is repeated in memory.
    """
    new, heads, head_dim = queries.shape
    return queries.view(new, kv_heads, heads // kv_heads, head_dim).permute(1, 2, 0, 3)


def _share(cached: torch.Tensor, group: int) -> torch.Tensor:
    tokens, kv_heads, head_dim = cached.shape
    return cached.permute(1, 0, 2).unsqueeze(1).expand(kv_heads, group, tokens, head_dim)


def _merge(own: Attended, past: Attended) -> torch.Tensor:
    """One softmax over both parts; the result takes the place of ``own``'s."""
    weight = torch.sigmoid(past[1] - own[1]).unsqueeze(-1).to(own[0].dtype)
    return own[0].lerp_(past[0], weight)


def _attend_masked(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int
) -> torch.Tensor:
    new, context = queries.shape[2], keys.shape[2]
    if new == 1:
        return scaled_dot_product_attention(queries, keys, values)
    if start == 0:
        return scaled_dot_product_attention(queries, keys, values, is_causal=True)
    visible = torch.ones(new, context, dtype=torch.bool, device=queries.device).tril(start)
    return scaled_dot_product_attention(queries, keys, values, attn_mask=visible)
