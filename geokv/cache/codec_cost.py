"""How long coding KV takes where a run stands for it: bytes a second, by codec.

Bytes are those before coding, KV of the bigger model included, as it is what a
deployment would have to code.
"""

from __future__ import annotations

from dataclasses import dataclass

from geokv.errors import ConfigError
from geokv.units import NS_PER_S


@dataclass(frozen=True)
class CodecCost:
    """One codec at one site.

    Raises:
        ConfigError: a rate is not positive.
    """

    encode_bytes_per_s: float
    decode_bytes_per_s: float

    def __post_init__(self) -> None:
        for name in ("encode_bytes_per_s", "decode_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"codec.{name}: must be > 0, got {getattr(self, name):g}")

    def scaled(self, byte_scale: float) -> CodecCost:
        """The same times for bytes that are divided by ``byte_scale``."""
        return CodecCost(self.encode_bytes_per_s / byte_scale, self.decode_bytes_per_s / byte_scale)

    def encode_ns(self, n_bytes: int) -> int:
        """To code ``n_bytes``, counted before coding."""
        return round(n_bytes / self.encode_bytes_per_s * NS_PER_S)

    def decode_ns(self, n_bytes: int) -> int:
        """To decode to ``n_bytes``."""
        return round(n_bytes / self.decode_bytes_per_s * NS_PER_S)


ZSTD = CodecCost(0.36e9, 0.49e9)
"""Byte shuffle and zstd level 1 as ``codec.Zstd`` has them, one core: ``tests/bench/codecs.py``
on 30 November 2026, a virtual Intel Xeon with AMX at 2.6 GHz, python-zstandard 0.25, KV of
smollm2-135m in bfloat16. A deployment that gives it more cores says so (``codec_cost``)."""


def on_device(memory_bytes_per_s: float) -> CodecCost:
    """``fp8`` and ``int8`` in one pass over a GPU's memory.

    Per element of 2 bytes (every GPU profile stands for bfloat16) 2 are read and 1 is
    written, or the other way round, so coding runs at 2/3 of the memory's bandwidth (a
    data sheet's; the quantising kernels of KV caches are bound by it). It is the least it
    can take: launching kernels, the scales of ``int8`` (4 bytes to 128 elements) and ways
    between host and device beyond the charged copy are left out.
    """
    return CodecCost(memory_bytes_per_s / 1.5, memory_bytes_per_s / 1.5)


def codec_costs(memory_bytes_per_s: float) -> dict[str, CodecCost]:
    """Every codec's, at a site whose GPUs have so much memory bandwidth together."""
    device = on_device(memory_bytes_per_s)
    return {"zstd": ZSTD, "fp8": device, "int8": device}
