"""Codecs for the KV of a layer group, by name.

Sizes are of one group; the ratio is that of the KV at hand. What the ``lossy`` ones
give back is close to, and not, what went in: a chunk that was coded so is marked, and
never served where exactness is asked. KV that a codec cannot carry (values that are not
finite, an element type it does not know) is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np
import zstandard

from geokv.cache.layout import ITEM_BYTES, ChunkLayout
from geokv.errors import ConfigError, RecordError

if TYPE_CHECKING:
    import torch

# The fastest level: on KV the next ones gain under 2 % for twice the time.
_ZSTD_LEVEL = 1
# The largest finite value of float8_e4m3fn (OCP 8-bit floating point, 2023).
_E4M3_MOST = 448.0
_SCALE_BYTES = 4
_FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Shape:
    """What a codec must know of a group.

    Args:
        dtype: element type, as torch names it.
        width: elements that share a scale: one head's key or value of one token.
    """

    dtype: str
    width: int

    @classmethod
    def of(cls, layout: ChunkLayout) -> Shape:
        """Of the groups of chunks that lie like this."""
        return cls(layout.dtype, layout.head_dim)


class Codec(Protocol):
    """One way to write a group shorter."""

    @property
    def name(self) -> str:
        """As settings name it."""

    @property
    def lossy(self) -> bool:
        """Is what comes back only close to what went in?"""

    def encode(self, group: memoryview, shape: Shape) -> bytes | None:
        """The group, coded; ``None`` if this codec cannot carry it."""

    def decode(self, coded: memoryview, shape: Shape, into: memoryview) -> None:
        """Write the group back.

        Raises:
            RecordError: ``coded`` is no group of this shape and of ``into``'s length.
        """


class Zstd:
    """Zstandard over the bytes of equal weight (byte shuffle): exact. What a float's
    high bytes have in common is found only when they lie together."""

    name = "zstd"
    lossy = False

    def encode(self, group: memoryview, shape: Shape) -> bytes | None:
        size = ITEM_BYTES[shape.dtype]
        planes = np.frombuffer(group, np.uint8).reshape(-1, size).T
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(planes.tobytes())

    def decode(self, coded: memoryview, shape: Shape, into: memoryview) -> None:
        try:
            if zstandard.get_frame_parameters(coded).content_size != len(into):
                raise RecordError(f"a zstd frame that is not one of {len(into)} bytes")
            raw = zstandard.ZstdDecompressor().decompress(coded)
        except zstandard.ZstdError as error:
            raise RecordError(f"no zstd frame ({error})") from None
        if len(raw) != len(into):
            raise RecordError(f"a zstd frame of {len(raw)} bytes where {len(into)} must be")
        size = ITEM_BYTES[shape.dtype]
        target = np.frombuffer(into, np.uint8).reshape(-1, size)
        target[:] = np.frombuffer(raw, np.uint8).reshape(size, -1).T


class Fp8:
    """Each element as float8 e4m3: 2 or 4 times shorter, about 2 significant digits;
    beyond ±448 it saturates."""

    name = "fp8"
    lossy = True

    def encode(self, group: memoryview, shape: Shape) -> bytes | None:
        import torch

        values = _values(group, shape)
        if values is None:
            return None
        small = values.clamp(-_E4M3_MOST, _E4M3_MOST).to(torch.float8_e4m3fn)
        return small.view(torch.uint8).numpy().tobytes()

    def decode(self, coded: memoryview, shape: Shape, into: memoryview) -> None:
        import torch

        _check_length(self.name, len(coded), len(into) // ITEM_BYTES[shape.dtype], shape)
        small = torch.from_numpy(np.frombuffer(coded, np.uint8).copy()).view(torch.float8_e4m3fn)
        _put(small.to(torch.float32), shape, into)


class Int8:
    """Each vector as int8 with its own scale, the largest magnitude being 127."""

    name = "int8"
    lossy = True

    def encode(self, group: memoryview, shape: Shape) -> bytes | None:
        import torch

        values = _values(group, shape)
        if values is None or values.numel() % shape.width:
            return None
        vectors = values.reshape(-1, shape.width)
        scales = vectors.abs().amax(1, keepdim=True) / 127
        steps = vectors / torch.where(scales > 0, scales, torch.ones_like(scales))
        whole = steps.round().clamp(-127, 127).to(torch.int8)
        return scales.numpy().astype("<f4").tobytes() + whole.numpy().tobytes()

    def decode(self, coded: memoryview, shape: Shape, into: memoryview) -> None:
        import torch

        count = len(into) // ITEM_BYTES[shape.dtype]
        vectors = count // shape.width
        _check_length(self.name, len(coded), count + _SCALE_BYTES * vectors, shape)
        scales = np.frombuffer(coded[: _SCALE_BYTES * vectors], "<f4").astype(np.float32)
        whole = np.frombuffer(coded[_SCALE_BYTES * vectors :], np.int8).reshape(-1, shape.width)
        values = whole.astype(np.float32) * scales[:, None]
        _put(torch.from_numpy(values.reshape(-1)), shape, into)


_ALL: tuple[Codec, ...] = (Zstd(), Fp8(), Int8())
CODECS: Mapping[str, Codec] = MappingProxyType({codec.name: codec for codec in _ALL})
"""Every codec but ``none``, by name."""


def check_codec(name: str, place: str = "substrate.codec") -> str:
    """``name``, if there is such a codec.

    Raises:
        ConfigError: there is not.
    """
    if name != "none" and name not in CODECS:
        raise ConfigError(f"{place}: unknown codec {name!r}", f"known: none, {', '.join(CODECS)}")
    return name


def _values(group: memoryview, shape: Shape) -> torch.Tensor | None:
    """The elements as float32, or ``None`` if one is not finite or no float."""
    import torch

    if shape.dtype not in _FLOATS:
        return None
    raw = torch.from_numpy(np.frombuffer(group, np.uint8).copy())
    values = raw.view(getattr(torch, shape.dtype)).to(torch.float32)
    return values if bool(torch.isfinite(values).all()) else None


def _put(values: torch.Tensor, shape: Shape, into: memoryview) -> None:
    import torch

    if shape.dtype not in _FLOATS:
        raise RecordError(f"a lossy codec cannot make {shape.dtype}")
    raw = values.to(getattr(torch, shape.dtype)).view(torch.uint8).numpy()
    np.frombuffer(into, np.uint8)[:] = raw


def _check_length(name: str, got: int, want: int, shape: Shape) -> None:
    if got != want:
        raise RecordError(f"{name}: {got} bytes where a group of {shape.dtype} has {want}")
