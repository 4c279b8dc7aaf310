"""The paged KV pool of one worker: one tensor, block ids, reference counts.

Blocks are handed out, shared by counting references, copied before a shared one is
written, and freed at zero. Freeing forgets nothing else: what is *cached* is the
prefix tree's business, which holds a reference of its own until it evicts.
(PagedAttention, SOSP 2023, §4.2-4.4.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from geokv.errors import EngineError, NoRoom
from geokv.memory import populated_memory

ALL_LAYERS = slice(None)


class BlockPool:
    """Keys and values of ``blocks`` × ``block_tokens`` tokens.

    ``tensor`` is ``[layers, 2, blocks, block_tokens, kv_heads, head_dim]`` (0 keys,
    1 values), layer-major so that one layer of a chunk can travel alone. It is
    allocated and touched here, never again.

    Raises:
        EngineError: sizes below one, or memory that cannot be had.
    """

    def __init__(
        self,
        layers: int,
        blocks: int,
        block_tokens: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        shape = (layers, 2, blocks, block_tokens, kv_heads, head_dim)
        if min(shape) < 1:
            raise EngineError(f"block pool {list(shape)}: every size must be ≥ 1")
        self.layers = layers
        self.blocks = blocks
        self.block_tokens = block_tokens
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.dtype = dtype
        self.device = device or torch.device("cpu")
        try:
            self.tensor = _zeros(torch.Size(shape), dtype, self.device)
        except (RuntimeError, OSError) as error:
            size_gib = torch.Size(shape).numel() * dtype.itemsize / 2**30
            raise EngineError(
                f"block pool of {size_gib:.2f} GiB cannot be allocated ({error})",
                "ask for fewer blocks or give the VM more memory",
            ) from None
        self._slots = self.tensor.view(layers, 2, blocks * block_tokens, kv_heads, head_dim)
        # Popped from the end, so a fresh pool hands out 0, 1, 2, …
        self._free = list(range(blocks - 1, -1, -1))
        self._references = [0] * blocks

    @property
    def free(self) -> int:
        """Blocks nobody refers to."""
        return len(self._free)

    def references(self, block: int) -> int:
        """How many owners ``block`` has; 0 means free."""
        return self._references[self._known(block)]

    def allocate(self, count: int) -> list[int]:
        """``count`` blocks with one reference each; their old content is undefined.

        Raises:
            NoRoom: fewer are free; none is taken.
        """
        if count < 0:
            raise EngineError(f"cannot allocate {count} blocks")
        if count > len(self._free):
            raise NoRoom(
                f"no room: {count} blocks wanted, {len(self._free)} of {self.blocks} free",
                "close sequences, evict cached prefixes or give the worker more blocks",
            )
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._references[block] = 1
        return taken

    def retain(self, blocks: Sequence[int]) -> None:
        """Add one owner to each of ``blocks``.

        Raises:
            EngineError: a block is free or unknown.
        """
        for block in blocks:
            if self.references(block) == 0:
                raise EngineError(f"block {block} is free and cannot be shared")
        for block in blocks:
            self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> int:
        """Drop one owner of each; returns how many became free.

        Raises:
            EngineError: a block is already free or unknown.
        """
        freed = 0
        # Last first: they come off the free list in order again, and a table whose blocks
        # lie one after another is read in place.
        for block in reversed(blocks):
            if self.references(block) == 0:
                raise EngineError(f"block {block} is freed twice")
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free.append(block)
                freed += 1
        return freed

    def writable(self, block: int) -> int:
        """``block`` itself when it has one owner, else a private copy (copy-on-write).

        The caller's reference moves to the returned block.

        Raises:
            EngineError: the block is free, or there is no room for a copy.
        """
        owners = self.references(block)
        if owners == 0:
            raise EngineError(f"block {block} is free and cannot be written")
        if owners == 1:
            return block
        (copy,) = self.allocate(1)
        self.tensor[:, :, copy].copy_(self.tensor[:, :, block])
        self._references[block] -= 1
        return copy

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Store ``[n, kv_heads, head_dim]``; a slot is block × block_tokens + offset."""
        self._slots[layer, 0].index_copy_(0, slots, keys)
        self._slots[layer, 1].index_copy_(0, slots, values)

    def view(self, layer: int, first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[count × block_tokens, kv_heads, head_dim]`` of consecutive blocks.

        They are the pool's own memory: read, do not write.
        """
        size = self.block_tokens
        part = self._slots[layer, :, first * size : (first + count) * size]
        return part[0], part[1]

    def read(
        self, layer: int, table: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Fill ``keys``, ``values`` ``[len(table) × block_tokens, kv_heads, head_dim]``."""
        shape = (len(table), self.block_tokens, self.kv_heads, self.head_dim)
        for half, out in enumerate((keys, values)):
            torch.index_select(self.tensor[layer, half], 0, table, out=out.view(shape))

    def gather(self, blocks: Sequence[int], out: torch.Tensor, layers: slice = ALL_LAYERS) -> None:
        """Copy ``blocks`` into the contiguous payload ``out``.

        Args:
            out: ``[len(range of layers), 2, len(blocks) × block_tokens, kv_heads, head_dim]``.

        Raises:
            EngineError: a wrong shape or dtype, or a block that is free or unknown.
        """
        part, payload, table = self._match(blocks, out, layers)
        for layer in range(part.shape[0]):
            for half in range(2):
                torch.index_select(part[layer, half], 0, table, out=payload[layer, half])

    def scatter(
        self, blocks: Sequence[int], payload: torch.Tensor, layers: slice = ALL_LAYERS
    ) -> None:
        """Copy a payload (shape as in :meth:`gather`) into ``blocks``.

        Raises:
            EngineError: as :meth:`gather`, or a block that has more than one owner.
        """
        part, source, table = self._match(blocks, payload, layers)
        if shared := [block for block in blocks if self._references[block] > 1]:
            raise EngineError(f"blocks {shared[:8]} are shared and must not be overwritten")
        if len(set(blocks)) != len(blocks):
            raise EngineError("a block appears twice in one scatter")
        for layer in range(part.shape[0]):
            for half in range(2):
                part[layer, half].index_copy_(0, table, source[layer, half])

    def check_integrity(self) -> None:
        """Free list and reference counts agree.

        Raises:
            EngineError: naming the first contradiction.
        """
        listed = set(self._free)
        if len(listed) != len(self._free):
            raise EngineError("block pool: a block is in the free list twice")
        for block, owners in enumerate(self._references):
            if owners < 0 or (owners == 0) != (block in listed):
                raise EngineError(
                    f"block pool: block {block} has {owners} owners "
                    f"and is {'' if block in listed else 'not '}in the free list"
                )

    def _known(self, block: int) -> int:
        if not 0 <= block < self.blocks:
            raise EngineError(f"block {block} is not one of this pool's {self.blocks}")
        return block

    def _match(
        self, blocks: Sequence[int], payload: torch.Tensor, layers: slice
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        part = self.tensor[layers]
        size = self.block_tokens
        wanted = (part.shape[0], 2, len(blocks) * size, self.kv_heads, self.head_dim)
        if tuple(payload.shape) != wanted or payload.dtype != self.dtype:
            raise EngineError(
                f"payload is {list(payload.shape)} {payload.dtype}, "
                f"{len(blocks)} blocks of this pool are {list(wanted)} {self.dtype}"
            )
        for block in blocks:
            if self.references(block) == 0:
                raise EngineError(f"block {block} is free and holds nothing")
        shaped = payload.view(*wanted[:2], len(blocks), size, *wanted[3:])
        table = torch.tensor(blocks, dtype=torch.int64, device=self.device)
        return part, shaped, table


def _zeros(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = populated_memory(shape.numel() * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
