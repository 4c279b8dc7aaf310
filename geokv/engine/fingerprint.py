"""The identity of a model: what must be equal for two sites to share KV."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, replace

import torch

from geokv.engine.config import ModelConfig

#: Tensors up to this size are hashed whole.
_WHOLE_BYTES = 8 * 2**20
#: Of larger ones, this much at the start, in the middle and at the end.
_WINDOW_BYTES = 64 * 2**10


def fingerprint(config: ModelConfig, weights: Iterable[tuple[str, torch.Tensor]]) -> str:
    """32 hex digits over the configuration (not its name) and the weights as they are stored.

    In which type they are computed is no part of it: KV of another type says so in its
    layout, and can be converted.

    Large tensors are sampled, so a change of a few numbers inside an 8B checkpoint
    can go unseen; another checkpoint, fine-tune or quantisation does not.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(sorted(asdict(replace(config, name="")).items())).encode())
    for name, tensor in weights:
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}".encode())
        raw = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        for window in _windows(raw):
            digest.update(window.numpy().data)
    return digest.hexdigest()


def _windows(raw: torch.Tensor) -> list[torch.Tensor]:
    size = raw.numel()
    if size <= _WHOLE_BYTES:
        return [raw]
    middle = size // 2
    return [raw[:_WINDOW_BYTES], raw[middle : middle + _WINDOW_BYTES], raw[-_WINDOW_BYTES:]]
