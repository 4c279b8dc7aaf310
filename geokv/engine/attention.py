"""Causal attention of new tokens over a cached prefix, grouped queries, no mask tensor.

On the CPU the new tokens attend twice, to the prefix (no mask) and to themselves
(causal), and the two results are merged by their log-sum-exp, as FlashDecoding and
vLLM's cascade attention do. A mask would be ``[new, context]`` floats per call.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

_flash_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int
) -> torch.Tensor:
    """Attention output ``[n, heads, head_dim]``.

    Args:
        queries: ``[n, heads, head_dim]`` of the tokens at ``start … start + n - 1``.
        keys, values: ``[start + n, kv_heads, head_dim]``, all tokens so far.
        start: tokens before the first query.
    """
    new, heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    # KV heads become the batch and the group of queries that shares one becomes the
    # heads, so that sharing is a stride of zero and nothing is repeated in memory.
    group = heads // kv_heads
    grouped = queries.view(new, kv_heads, group, head_dim).permute(1, 2, 0, 3)
    if queries.device.type == "cpu":
        out = _attend_cpu(grouped, _share(keys, group), _share(values, group), start)
    else:
        out = _attend_masked(grouped, _share(keys, group), _share(values, group), start)
    return out.permute(2, 0, 1, 3).reshape(new, heads, head_dim)


def _share(cached: torch.Tensor, group: int) -> torch.Tensor:
    tokens, kv_heads, head_dim = cached.shape
    return cached.permute(1, 0, 2).unsqueeze(1).expand(kv_heads, group, tokens, head_dim)


def _attend_cpu(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int
) -> torch.Tensor:
    if queries.shape[2] == 1:
        out: torch.Tensor = _flash_cpu(queries, keys, values, 0.0, False)[0]
        return out
    own, own_lse = _flash_cpu(queries, keys[:, :, start:], values[:, :, start:], 0.0, True)
    if start == 0:
        return own  # type: ignore[no-any-return]
    past, past_lse = _flash_cpu(queries, keys[:, :, :start], values[:, :, :start], 0.0, False)
    weight = torch.sigmoid(past_lse - own_lse).unsqueeze(-1).to(own.dtype)
    return torch.lerp(own, past, weight)


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
