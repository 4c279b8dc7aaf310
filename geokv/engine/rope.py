"""Rotary position embedding, with Llama 3.1's frequency scaling."""

from __future__ import annotations

import math

import torch

from geokv.engine.config import ModelConfig, RopeScaling


def inverse_frequencies(config: ModelConfig, device: torch.device) -> torch.Tensor:
    """Angle per position of each pair of a head, float32 ``[head_dim / 2]``."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64, device=device)
    frequencies = 1.0 / (config.rope_theta ** (exponents.float() / config.head_dim))
    return _scale(frequencies, config.rope_scaling) if config.rope_scaling else frequencies


def _scale(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Slow frequencies are divided by ``factor``, fast ones kept, those between are mixed.

    Source: Meta's llama-models ``apply_scaling`` and the ``llama3`` rope type of transformers.
    """
    wavelengths = 2 * math.pi / frequencies
    slow = scaling.original_max_tokens / scaling.low_freq_factor
    fast = scaling.original_max_tokens / scaling.high_freq_factor
    share = (scaling.original_max_tokens / wavelengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    mixed = (1 - share) * frequencies / scaling.factor + share * frequencies
    scaled = torch.where(wavelengths > slow, frequencies / scaling.factor, mixed)
    return torch.where(wavelengths < fast, frequencies, scaled)


def angles(
    inverse: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine ``[n, 1, head_dim / 2]`` for ``positions`` ``[n]``."""
    half = (positions.float()[:, None] * inverse)[:, None, :]
    return half.cos().to(dtype), half.sin().to(dtype)


def rotate_(
    heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, scratch: torch.Tensor
) -> None:
    """Rotate ``[n, heads, head_dim]`` in place.

    Pairs are (i, i + head_dim / 2) as in HF checkpoints.

    Args:
        scratch: ``[n, heads, head_dim / 2]``, overwritten.
    """
    left, right = heads.chunk(2, dim=-1)
    torch.mul(left, sine, out=scratch)
    left.mul_(cosine).addcmul_(right, sine, value=-1)
    right.mul_(cosine).add_(scratch)
