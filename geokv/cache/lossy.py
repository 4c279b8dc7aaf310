"""Lossy forms of KV: what a payload is after it has been packed into fewer bits and back.

Payloads are ``[layers, 2, tokens, kv_heads, head_dim]``; a vector is one token's key or value in
one head of one layer. Integers are scaled by the largest magnitude of their own vector, in
float16 beside it, symmetric, without a zero point: the plain scheme that others are measured
against. Quality is measured with these; what travels is coded by ``codec``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

_SCALE_BYTES = 2
_E4M3_MAX = 448.0
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True)
class Codec:
    """One lossy form.

    Attributes:
        bits: of one number.
        scale_bytes: beside each vector.
        round_trip: payload → what is read after packing it, same shape and dtype.
    """

    name: str
    bits: int
    scale_bytes: int
    round_trip: Callable[[torch.Tensor], torch.Tensor]

    def size_bytes(self, payload: torch.Tensor) -> int:
        """Bytes that ``payload`` packs into."""
        vectors = payload.numel() // payload.shape[-1]
        return payload.numel() * self.bits // 8 + vectors * self.scale_bytes


def _cast(payload: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return payload.to(dtype).to(payload.dtype)


def _e4m3(payload: torch.Tensor) -> torch.Tensor:
    # The format has no infinity: beyond its largest number a cast would give NaN.
    return _cast(payload.clamp(-_E4M3_MAX, _E4M3_MAX), torch.float8_e4m3fn)


def _absmax(payload: torch.Tensor, bits: int) -> torch.Tensor:
    most = 2 ** (bits - 1) - 1
    wide = payload.float()
    scale = wide.abs().amax(-1, keepdim=True) / most
    scale = scale.clamp(max=_FLOAT16_MAX).half().float()
    # A vector of zeros, or too small for a float16 scale, is read as zeros.
    steps = torch.where(scale > 0, wide / scale, 0.0).round().clamp(-most, most)
    packed: torch.Tensor = steps * scale
    return packed.to(payload.dtype)


CODECS = {
    codec.name: codec
    for codec in (
        Codec("bf16", 16, 0, partial(_cast, dtype=torch.bfloat16)),
        Codec("fp8-e4m3", 8, 0, _e4m3),
        Codec("int8", 8, _SCALE_BYTES, partial(_absmax, bits=8)),
        Codec("int4", 4, _SCALE_BYTES, partial(_absmax, bits=4)),
        Codec("int3", 3, _SCALE_BYTES, partial(_absmax, bits=3)),
    )
}
"""By name, from the mildest to the harshest."""
