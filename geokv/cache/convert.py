"""Chunks of one layout made into chunks of another: mixed fleets.

What can be converted is what names the same KV: the same model and shape, keys that
are links of the same chain, and chunks of which one is a whole number of the other.
Block size, layer groups, filler and shards then differ freely, and element types
among the three below. The receiver converts, into its own layout, and looks at every
element again afterwards: a conversion that must be exact and is not is no chunk.

Chain keys depend on how many tokens a link has (``key_tokens``), because each link
hashes the one before: keys of 16-token links and of 32-token links have no value in
common. A site with blocks of 32 joins one with blocks of 16 by keeping 16-token links.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from geokv.cache.keys import ChunkRef, chunk_refs
from geokv.cache.layout import ITEM_BYTES, ChunkLayout
from geokv.errors import ConfigError, FetchError, RecordError

CONVERTIBLE_DTYPES = ("float32", "float16", "bfloat16")
MOST_CHUNKS_IN_ONE = 64
_MOST_WIRE_FACTOR = 16
_SAME = ("model_fingerprint", "layers", "kv_heads", "head_dim", "key_tokens")
_BF16_NAN = 0x7FC0
_Array = NDArray[np.generic]


def refusals(mine: ChunkLayout, theirs: ChunkLayout) -> list[str]:
    """Why chunks of ``theirs`` cannot be made ``mine``, one line with both values per
    reason; empty if they can. Both ends come to the same answer."""
    lines = [_line(name, mine, theirs) for name in _SAME if _differ(name, mine, theirs)]
    if _differ("dtype", mine, theirs) and not {mine.dtype, theirs.dtype} <= set(CONVERTIBLE_DTYPES):
        lines.append(_line("dtype", mine, theirs))
    small, large = sorted((mine.chunk_tokens, theirs.chunk_tokens))
    if large % small or large // small > MOST_CHUNKS_IN_ONE:
        lines.append(_line("chunk_tokens", mine, theirs))
    small, large = sorted((mine.wire_bytes_per_token, theirs.wire_bytes_per_token))
    if large > _MOST_WIRE_FACTOR * small:
        # What a peer says must not decide how much memory is taken here.
        lines.append(_line("wire_bytes_per_token", mine, theirs))
    return lines


def parts_of(ref: ChunkRef, theirs: ChunkLayout) -> list[ChunkRef]:
    """The smaller chunks of ``theirs`` that make up ``ref``, in order.

    Raises:
        FetchError: ``mismatch``: their chain does not end at the key of ``ref``.
    """
    parts = chunk_refs(
        ref.parent, ref.tokens, theirs.chunk_tokens, theirs.key_tokens, ref.tenant, ref.epoch
    )
    if not parts or parts[-1].key != ref.key:
        raise FetchError("mismatch", f"chunk {ref.key.hex()} is no chain of {theirs.key_tokens}")
    return parts


def whole_of(refs: Sequence[ChunkRef]) -> ChunkRef:
    """The larger chunk that consecutive ``refs`` make up."""
    tokens = tuple(token for ref in refs for token in ref.tokens)
    last = refs[-1]
    return ChunkRef(last.key, refs[0].parent, tokens, last.tenant, last.epoch)


class Converter:
    """Makes KV of ``theirs`` KV of ``mine``.

    Attributes:
        exact: every value survives, whatever it is.

    Raises:
        ConfigError: it cannot be done; both values are named.
    """

    def __init__(self, mine: ChunkLayout, theirs: ChunkLayout) -> None:
        reasons = refusals(mine, theirs)
        if reasons:
            raise ConfigError(f"chunks cannot be converted: {'; '.join(reasons)}")
        self.mine = mine
        self.theirs = theirs
        self.exact = mine.dtype == theirs.dtype or mine.dtype == "float32"

    def convert(
        self,
        source: memoryview,
        source_token: int,
        target: memoryview,
        target_token: int,
        tokens: int,
    ) -> bool:
        """Write ``tokens`` tokens of ``source`` into ``target``.

        Args:
            source: payload of one of their chunks; ``source_token`` is the first taken.
            target: memory of one of ours; ``target_token`` is the first written.

        Returns:
            Is every value the same number as before?

        Raises:
            RecordError: a conversion that loses nothing by its nature has lost something.
        """
        here, there = _as_array(target, self.mine), _as_array(source, self.theirs)
        from_ = slice(source_token, source_token + tokens)
        to = slice(target_token, target_token + tokens)
        same = True
        for their_shard, my_shard, their_heads, my_heads in self._pieces():
            for layer in range(self.mine.layers):  # bounds what is held besides
                old = there[layer, their_shard, :, from_, their_heads]
                new = here[layer, my_shard, :, to, my_heads]
                new[...] = _cast(old, self.theirs.dtype, self.mine.dtype)
                back = _cast(new, self.mine.dtype, self.theirs.dtype)
                same = same and np.array_equal(_bits(back), _bits(old))
        if self.exact and not same:
            raise RecordError(f"{self.theirs.dtype} did not survive as {self.mine.dtype}")
        return same

    def _pieces(self) -> list[tuple[int, int, slice, slice]]:
        """(their shard, my shard, heads in theirs, heads in mine): a common division."""
        width, my_width = (layout.kv_heads // layout.shards for layout in (self.theirs, self.mine))
        edges = sorted(
            {*range(0, self.mine.kv_heads, width), *range(0, self.mine.kv_heads, my_width)}
        )
        pieces = []
        for start, stop in zip(edges, [*edges[1:], self.mine.kv_heads], strict=True):
            pieces.append(
                (
                    start // width,
                    start // my_width,
                    slice(start % width, start % width + stop - start),
                    slice(start % my_width, start % my_width + stop - start),
                )
            )
        return pieces


def _as_array(memory: memoryview, layout: ChunkLayout) -> _Array:
    """``[L, S, 2, T, Hkv / S, D]``; bfloat16 as its bits."""
    if layout.dtype in ("float32", "float16"):
        dtype = np.dtype(layout.dtype)
    else:
        dtype = np.dtype(f"u{ITEM_BYTES[layout.dtype]}")
    flat = np.frombuffer(memory, dtype=dtype, count=layout.real_bytes // dtype.itemsize)
    heads = layout.kv_heads // layout.shards
    return flat.reshape(
        layout.layers, layout.shards, 2, layout.chunk_tokens, heads, layout.head_dim
    )


def _cast(values: _Array, old: str, new: str) -> _Array:
    if old == new:
        return values
    wide: _Array = _widen(values) if old == "bfloat16" else values.astype(np.float32)
    if new == "bfloat16":
        return _narrow(wide)
    with np.errstate(over="ignore"):  # beyond float16's range is infinity, and not exact
        return wide.astype(np.dtype(new))


def _widen(bits: _Array) -> _Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _narrow(values: _Array) -> _Array:
    """float32 to bfloat16: to nearest, ties to even, as torch rounds."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    rounded[np.isnan(values)] = _BF16_NAN
    return rounded


def _bits(values: _Array) -> _Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _differ(name: str, mine: ChunkLayout, theirs: ChunkLayout) -> bool:
    return bool(getattr(mine, name) != getattr(theirs, name))


def _line(name: str, mine: ChunkLayout, theirs: ChunkLayout) -> str:
    return f"{name}: {getattr(mine, name)!r} here, {getattr(theirs, name)!r} there"
