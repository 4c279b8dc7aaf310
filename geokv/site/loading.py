"""From chunks in host memory into blocks on the device: whole ones, or layer by layer."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import Entry
from geokv.engine.engine import Engine
from geokv.engine.sequence import Sequence as EngineSequence


@dataclass(eq=False)
class _Filler:
    """Takes chunks into the blocks reserved for them.

    Args:
        skip_tokens: of the first chunk, which the device has already.
    """

    engine: Engine
    seq: EngineSequence
    layout: ChunkLayout
    blocks: list[int]
    skip_tokens: int
    copy_bytes_per_token: int

    def _wanted(self, index: int) -> slice:
        """Which of the tokens to be filled this chunk brings."""
        stop = (index + 1) * self.layout.chunk_tokens - self.skip_tokens
        return slice(max(0, stop - self.layout.chunk_tokens), stop)

    def _scatter(self, index: int, memory: memoryview, layers: slice) -> None:
        """These layers of one chunk, into its blocks."""
        layout, size, wanted = self.layout, self.layout.block_tokens, self._wanted(index)
        skip = self.skip_tokens if index == 0 else 0
        payload = read_payload(memory, layout, layers.stop - layers.start)[:, :, skip:]
        blocks = self.blocks[wanted.start // size : wanted.stop // size]
        self.engine.pool.scatter(blocks, payload, layers)


@dataclass(eq=False)
class BlockFiller(_Filler):
    """Takes chunks in prefix order."""

    async def take(self, index: int, entry: Entry) -> None:
        """Scatter one chunk and charge its copy to the device; only then it counts."""
        self._scatter(index, entry.view, slice(0, self.layout.layers))
        wanted = self._wanted(index)
        tokens = wanted.stop - wanted.start
        await self.engine.compute.copy(tokens * self.copy_bytes_per_token, 1, "host_to_device")
        self.engine.commit(self.seq, tokens)


@dataclass(eq=False)
class LayerFiller(_Filler):
    """Takes the layer groups of a prefix as they come, and lets the engine begin with the first.

    Pieces gather in one staging area, as with P/D-Serve's block-free transfer, and what lies there
    when the copy engine is free goes to the device as one operation. So a fast wire makes copies
    larger and not more, and of a group's copy only the end comes after its last byte.
    """

    def __post_init__(self) -> None:
        ends = [stop for _, stop in self.layout.group_layers]
        self._arrival = self.engine.expect(self.seq, ends)
        self._tokens = self._arrival.tokens
        self._groups_done = 0
        self._staged_tokens = 0
        self._copying: asyncio.Task[None] | None = None

    async def take(self, index: int, group: int, memory: memoryview) -> None:
        """Scatter one layer group of one chunk; the engine does not count it yet."""
        start, stop = self.layout.group_layers[group]
        if start < stop:
            self._scatter(index, memory, slice(start, stop))
        wanted = self._wanted(index)
        self._staged_tokens += wanted.stop - wanted.start
        if self._copying is None:
            self._copying = asyncio.get_running_loop().create_task(self._copy_staged())

    async def _copy_staged(self) -> None:
        """Charge copies to the device until the staging area is empty."""
        while tokens := self._staged_tokens:
            self._staged_tokens = 0
            share = tokens * self.copy_bytes_per_token // self.layout.groups
            await self.engine.compute.copy(share, 1, "host_to_device")
        self._copying = None

    async def end_group(self, group: int, chunks: int) -> None:
        """Wait until the group is on the device, and let the engine use it.

        A prefix that has become shorter is held back until it is known how long it is.
        """
        tokens = max(0, chunks * self.layout.chunk_tokens - self.skip_tokens)
        if tokens < self._tokens:
            self._tokens = tokens
            self._arrival = self.engine.retract(self.seq)
        if self._copying is not None:
            await self._copying
        self._groups_done = group + 1
        if tokens == self._arrival.tokens:
            self._arrival.arrive()

    def close(self) -> None:
        """Nothing more comes: what is whole counts, the rest is to be computed."""
        if self._copying is not None:
            self._copying.cancel()
        if self._arrival.complete:
            return
        whole = self._groups_done == self.layout.groups
        self.engine.rollback(self.seq, keep=self._tokens if whole else 0)


def read_payload(memory: memoryview, layout: ChunkLayout, layers: int = 0) -> torch.Tensor:
    """A chunk's KV ``[L, 2, T, Hkv, D]``: its memory itself, or a copy where shards divide it.

    Args:
        layers: how many layers the memory has; 0 is all of the layout's.
    """
    return by_shard(memory, layout, layers).flatten(3, 4)


def write_payload(
    memory: memoryview, layout: ChunkLayout, fill: Callable[[torch.Tensor], None]
) -> None:
    """Have a chunk's memory written by ``fill``, which gets ``[L, 2, T, Hkv, D]``, contiguous."""
    shards = by_shard(memory, layout)
    if layout.shards == 1:
        fill(shards.flatten(3, 4))
        return
    payload = shards.new_empty(shards.flatten(3, 4).shape)
    fill(payload)
    shards.copy_(payload.view(shards.shape))


def by_shard(memory: memoryview, layout: ChunkLayout, layers: int = 0) -> torch.Tensor:
    """A chunk's memory as tensor ``[L, 2, T, S, Hkv / S, D]``, without copying."""
    with warnings.catch_warnings():
        # Chunks are read-only once complete; torch has no such notion and says so.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(memory, dtype=getattr(torch, layout.dtype))
    heads = layout.kv_heads // layout.shards
    lies = (layers or layout.layers, layout.shards, 2, layout.chunk_tokens, heads, layout.head_dim)
    return flat.view(lies).permute(0, 2, 3, 1, 4, 5)
