"""From chunks in host memory into blocks on the device: whole ones, or layer by layer."""

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


class LayerFiller:
    """Takes the layer groups of a prefix as they come, and lets the engine begin with the first.

    One copy to the device per group, for all chunks together: they lie in one staging area
    by then, as with P/D-Serve's block-free transfer.
    """

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
        self._bytes_per_token = copy_bytes_per_token
        self._arrival = engine.expect(seq, [stop for _, stop in layout.group_layers])
        self._tokens = self._arrival.tokens
        self._groups_done = 0

    async def take(self, index: int, group: int, memory: memoryview) -> None:
        """Scatter one layer group of one chunk; the engine does not count it yet."""
        layout = self._layout
        start, stop = layout.group_layers[group]
        if start == stop:
            return
        skip = self._skip_tokens if index == 0 else 0
        payload = as_payload(memory, layout, stop - start)[:, :, skip:]
        self._engine.pool.scatter(self._blocks_of(index), payload, slice(start, stop))

    async def end_group(self, group: int, chunks: int) -> None:
        """Charge the group's copy to the device, and let the engine use it.

        A prefix that has become shorter is held back until it is known how long it is.
        """
        tokens = max(0, chunks * self._layout.chunk_tokens - self._skip_tokens)
        if tokens < self._tokens:
            self._tokens = tokens
            self._arrival = self._engine.retract(self._seq)
        share = tokens * self._bytes_per_token // self._layout.groups
        await self._engine.compute.copy(share, 1, "host_to_device")
        self._groups_done = group + 1
        if tokens == self._arrival.tokens:
            self._arrival.arrive()

    def close(self) -> None:
        """Nothing more comes: what is whole counts, the rest is to be computed."""
        if self._arrival.complete:
            return
        whole = self._groups_done == self._layout.groups
        self._engine.rollback(self._seq, keep=self._tokens if whole else 0)

    def _blocks_of(self, index: int) -> list[int]:
        size, skipped = self._layout.block_tokens, self._skip_tokens
        stop = (index + 1) * self._layout.chunk_tokens - skipped
        start = max(0, stop - self._layout.chunk_tokens)
        if index == 0:
            start = 0
        return self._blocks[start // size : stop // size]


def as_payload(memory: memoryview, layout: ChunkLayout, layers: int = 0) -> torch.Tensor:
    """A chunk's memory as tensor ``[L, 2, T, Hkv, D]``, without copying.

    Args:
        layers: how many layers the memory has; 0 is all of the layout's.
    """
    with warnings.catch_warnings():
        # Chunks are read-only once complete; torch has no such notion and says so.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(memory, dtype=getattr(torch, layout.dtype))
    count = layers or layout.layers
    return flat.view(count, 2, layout.chunk_tokens, layout.kv_heads, layout.head_dim)
