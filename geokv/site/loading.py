"""From a chunk in host memory into blocks on the device."""

from __future__ import annotations

import warnings

import torch

from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import Entry
from geokv.engine.engine import Engine
from geokv.engine.sequence import Sequence as EngineSequence


class BlockFiller:
    """Takes chunks in prefix order into the blocks reserved for them."""

    def __init__(
        self,
        engine: Engine,
        seq: EngineSequence,
        layout: ChunkLayout,
        blocks: list[int],
        skip_tokens: int,
        copy_bytes_per_token: int,
    ) -> None:
        self._engine = engine
        self._seq = seq
        self._layout = layout
        self._blocks = blocks
        self._skip_tokens = skip_tokens
        self._copy_bytes_per_token = copy_bytes_per_token

    async def take(self, index: int, entry: Entry) -> None:
        """Scatter one chunk and charge its copy to the device; only then it counts."""
        layout = self._layout
        skip = self._skip_tokens if index == 0 else 0
        tokens = layout.chunk_tokens - skip
        count = tokens // layout.block_tokens
        blocks, self._blocks = self._blocks[:count], self._blocks[count:]
        payload = as_payload(entry.view, layout)[:, :, skip:]
        self._engine.pool.scatter(blocks, payload)
        await self._engine.compute.copy(tokens * self._copy_bytes_per_token, 1, "host_to_device")
        self._engine.commit(self._seq, tokens)


def as_payload(memory: memoryview, layout: ChunkLayout) -> torch.Tensor:
    """A chunk's memory as tensor ``[L, 2, T, Hkv, D]``, without copying."""
    with warnings.catch_warnings():
        # Chunks are read-only once complete; torch has no such notion and says so.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(memory, dtype=getattr(torch, layout.dtype))
    return flat.view(layout.layers, 2, layout.chunk_tokens, layout.kv_heads, layout.head_dim)
