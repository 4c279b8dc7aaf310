"""Identity of KV: a BLAKE2b-128 chain over (parent, token ids).

The chain is rooted in (model fingerprint, tenant salt, adapter), so that neither
another model nor another tenant can name the same chunk, and no process state
(hash seed, load order) takes part: every site computes the same keys.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geokv.errors import CacheError, ConfigError

KEY_BYTES = 16


@dataclass(frozen=True)
class ChunkRef:
    """One chunk that somebody wants or has: its key and what the key stands for.

    Args:
        key: chain key at the end of the chunk.
        parent: chain key at its beginning (the previous chunk's key, or the root).
        tokens: the token ids of the chunk; compared on receipt, so that a
            collision of keys is a miss and never a wrong answer.
        tenant: who may read it.
        epoch: number of the tenant's last purge, 0 before the first; part of the root.
    """

    key: bytes
    parent: bytes
    tokens: tuple[int, ...]
    tenant: str
    epoch: int = 0

    @cached_property
    def packed_tokens(self) -> bytes | None:
        """The token ids as headers have them, big endian u32 each; ``None`` if one does
        not fit."""
        try:
            return struct.pack(f"!{len(self.tokens)}I", *self.tokens)
        except struct.error:
            return None


def root_key(
    model_fingerprint: str, tenant_salt: bytes, adapter: str = "", epoch: int = 0
) -> bytes:
    """First key of the chain of one model, tenant, adapter and epoch (16 bytes)."""
    digest = hashlib.blake2b(digest_size=KEY_BYTES, person=b"geokv-root")
    parts = [model_fingerprint.encode(), tenant_salt, adapter.encode()]
    if epoch:
        parts.append(epoch.to_bytes(8, "little"))
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def block_keys(root: bytes, tokens: Sequence[int], block_tokens: int) -> list[bytes]:
    """One key per full block of ``block_tokens`` tokens.

    Raises:
        ConfigError: ``block_tokens`` is not positive.
        CacheError: a token id does not fit 32 bits.
    """
    if block_tokens < 1:
        raise ConfigError(f"block_tokens: must be ≥ 1, got {block_tokens}")
    raw = _token_bytes(tokens)
    keys = []
    key = root
    step = 4 * block_tokens
    for end in range(step, len(raw) + 1, step):
        digest = hashlib.blake2b(key, digest_size=KEY_BYTES, person=b"geokv-block")
        digest.update(raw[end - step : end])
        key = digest.digest()
        keys.append(key)
    return keys


def chunk_keys(
    root: bytes, tokens: Sequence[int], chunk_tokens: int, block_tokens: int
) -> list[bytes]:
    """The chain key at the end of each full chunk.

    Raises:
        ConfigError: ``chunk_tokens`` is not a multiple of ``block_tokens``.
    """
    if chunk_tokens < 1 or block_tokens < 1 or chunk_tokens % block_tokens:
        raise ConfigError(
            f"chunk_tokens: must be a multiple of block_tokens ({block_tokens}), got {chunk_tokens}"
        )
    per_chunk = chunk_tokens // block_tokens
    return block_keys(root, tokens, block_tokens)[per_chunk - 1 :: per_chunk]


def chunk_refs(
    root: bytes,
    tokens: Sequence[int],
    chunk_tokens: int,
    block_tokens: int,
    tenant: str,
    epoch: int = 0,
) -> list[ChunkRef]:
    """Every full chunk of ``tokens`` with its parent and tokens, in prefix order."""
    keys = chunk_keys(root, tokens, chunk_tokens, block_tokens)
    parents = [root, *keys][: len(keys)]
    return [
        ChunkRef(
            key, parent, tuple(tokens[i * chunk_tokens : (i + 1) * chunk_tokens]), tenant, epoch
        )
        for i, (key, parent) in enumerate(zip(keys, parents, strict=True))
    ]


def _token_bytes(tokens: Sequence[int]) -> bytes:
    ids = np.asarray(tokens, dtype=np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= 2**32):
        raise CacheError("a token id is negative or does not fit 32 bits")
    return ids.astype("<u4").tobytes()
