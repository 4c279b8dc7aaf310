"""How the KV of a chunk lies in memory and on the wire.

A chunk's payload is ``[L, 2, T, Hkv, D]`` (layers, K and V, tokens, KV heads, head
width), cut into groups of whole layers; where tensor-parallel ranks hold the heads,
it is ``[L, S, 2, T, Hkv / S, D]``, one rank's part after the other. On the wire
every group is followed by filler, so that the record is as long as the KV of the model
the run *stands for*, divided by the byte scale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from geokv.errors import ConfigError

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
}


_COUNTS = (
    "layers",
    "kv_heads",
    "head_dim",
    "block_tokens",
    "chunk_tokens",
    "groups",
    "key_tokens",
    "shards",
)


@dataclass(frozen=True)
class ChunkLayout:
    """Shape of every chunk of a deployment; sites must agree on each field.

    Args:
        model_fingerprint: of the model that really runs.
        dtype: element type of the KV, as torch names it (``float32``).
        groups: layer groups; layers are split as evenly as they go.
        wire_bytes_per_token: bytes a token has on the wire, filler included
            (``target_bytes_per_token / S``).
        key_tokens: tokens per link of the key chain; 0 means ``block_tokens``. Sites
            with blocks of different sizes share keys if they agree on this.
        shards: tensor-parallel ranks among which the KV heads are divided.

    Raises:
        ConfigError: a field is impossible, or the wire is shorter than the real KV.
    """

    model_fingerprint: str
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    chunk_tokens: int
    groups: int
    wire_bytes_per_token: int
    key_tokens: int = 0
    shards: int = 1

    @classmethod
    def scaled(
        cls, *, target_bytes_per_token: int, byte_scale: float, **fields_: Any
    ) -> ChunkLayout:
        """A layout whose wire size is ``target_bytes_per_token / byte_scale``.

        Raises:
            ConfigError: the real KV would not fit; the message names the largest
                byte scale that still does.
        """
        if byte_scale <= 0:
            raise ConfigError(f"byte_scale: must be > 0, got {byte_scale:g}")
        real = _real_bytes_per_token(
            fields_["dtype"], fields_["layers"], fields_["kv_heads"], fields_["head_dim"]
        )
        wire = int(target_bytes_per_token / byte_scale)
        if wire < real:
            raise ConfigError(
                f"byte_scale: {byte_scale:g} leaves {wire} bytes per token on the wire, "
                f"but the running model's KV has {real}",
                f"use byte_scale ≤ {target_bytes_per_token / real:g}",
            )
        return cls(wire_bytes_per_token=wire, **fields_)

    def __post_init__(self) -> None:
        if self.key_tokens == 0:
            object.__setattr__(self, "key_tokens", self.block_tokens)
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ConfigError(f"layout.{name}: must be ≥ 1, got {getattr(self, name)}")
        for name, whole, part in (
            ("chunk_tokens", self.chunk_tokens, "block_tokens"),
            ("block_tokens", self.block_tokens, "key_tokens"),
            ("kv_heads", self.kv_heads, "shards"),
        ):
            if whole % getattr(self, part):
                raise ConfigError(
                    f"layout.{name}: must be a multiple of {part} "
                    f"({getattr(self, part)}), got {whole}"
                )
        most = self.wire_bytes // (self.real_bytes // self.layers)
        if self.layers < self.groups and self.groups > most:
            raise ConfigError(
                f"layout.groups: must be ≤ {max(self.layers, most)}, or a real layer would not fit "
                f"its group, got {self.groups}"
            )
        real = self.real_bytes_per_token
        if self.wire_bytes_per_token < real:
            raise ConfigError(
                f"layout.wire_bytes_per_token: {self.wire_bytes_per_token} is less than the "
                f"{real} bytes of the running model's KV",
                f"use byte_scale ≤ target_bytes_per_token / {real}",
            )

    @cached_property
    def real_bytes_per_token(self) -> int:
        """Bytes of real KV per token: L × 2 × Hkv × D × item size."""
        return _real_bytes_per_token(self.dtype, self.layers, self.kv_heads, self.head_dim)

    @cached_property
    def real_bytes(self) -> int:
        """Bytes of the payload ``[L, 2, T, Hkv, D]`` of one chunk."""
        return self.real_bytes_per_token * self.chunk_tokens

    @cached_property
    def wire_bytes(self) -> int:
        """Bytes of one chunk on the wire, without its header; ≥ ``real_bytes``."""
        return self.wire_bytes_per_token * self.chunk_tokens

    @cached_property
    def group_layers(self) -> tuple[tuple[int, int], ...]:
        """Half-open layer range of each group.

        There may be more groups than layers run: they stand for those of a deeper model,
        and bring no real layer until enough of them have come.
        """
        if self.groups > self.layers:
            ends = [(g + 1) * self.layers // self.groups for g in range(self.groups)]
            return tuple(zip([0, *ends], ends, strict=False))
        base, extra = divmod(self.layers, self.groups)
        ranges, start = [], 0
        for group in range(self.groups):
            stop = start + base + (group < extra)
            ranges.append((start, stop))
            start = stop
        return tuple(ranges)

    @cached_property
    def group_bytes(self) -> tuple[tuple[int, int], ...]:
        """(real bytes, filler bytes) of each group; they add up to ``wire_bytes``."""
        per_layer = self.real_bytes // self.layers
        filler = self.wire_bytes - self.real_bytes
        if self.groups > self.layers:
            return self._even_groups(per_layer)
        return tuple(
            (
                (stop - start) * per_layer,
                filler * stop // self.layers - filler * start // self.layers,
            )
            for start, stop in self.group_layers
        )

    def _even_groups(self, per_layer: int) -> tuple[tuple[int, int], ...]:
        """Groups of one size on the wire, whatever real layers they bring."""
        ends = [(g + 1) * self.wire_bytes // self.groups for g in range(self.groups)]
        sizes = [stop - start for start, stop in zip([0, *ends], ends, strict=False)]
        real = [(stop - start) * per_layer for start, stop in self.group_layers]
        return tuple((has, size - has) for has, size in zip(real, sizes, strict=True))

    @cached_property
    def group_slices(self) -> tuple[slice, ...]:
        """Where each group's real bytes lie in the payload."""
        slices, start = [], 0
        for real, _ in self.group_bytes:
            slices.append(slice(start, start + real))
            start += real
        return tuple(slices)

    def chosen(self, group: int) -> range:
        """The groups that ``group`` stands for in a request: all of them if it is -1."""
        return range(self.groups) if group < 0 else range(group, group + 1)

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes that two layouts share only if every field agrees."""
        text = json.dumps(self.as_dict(), sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=16, person=b"geokv-layout").digest()

    @cached_property
    def model_digest(self) -> bytes:
        """16 bytes that stand for ``model_fingerprint`` in headers."""
        return hashlib.blake2b(
            self.model_fingerprint.encode(), digest_size=16, person=b"geokv-model"
        ).digest()

    def as_dict(self) -> dict[str, str | int]:
        """Every field by name, for the handshake and for run folders."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ChunkLayout:
        """What ``as_dict`` of another site said.

        Raises:
            ConfigError: a field is missing, unknown, of the wrong type or impossible.
        """
        types = {"model_fingerprint": str, "dtype": str}
        for field in fields(cls):
            value = data.get(field.name)
            if type(value) is not types.get(field.name, int):
                raise ConfigError(f"layout.{field.name}: cannot be {value!r}")
        if len(data) != len(fields(cls)):
            raise ConfigError("layout: it has fields that are not known here")
        return cls(**data)

    def mismatch(self, other: ChunkLayout | dict[str, Any]) -> list[str]:
        """One line per differing field, with both values (own first); empty if equal."""
        theirs = other.as_dict() if isinstance(other, ChunkLayout) else other
        return [
            f"{name}: {mine!r} here, {theirs.get(name)!r} there"
            for name, mine in self.as_dict().items()
            if theirs.get(name) != mine
        ]


def _real_bytes_per_token(dtype: str, layers: int, kv_heads: int, head_dim: int) -> int:
    if dtype not in ITEM_BYTES:
        known = ", ".join(ITEM_BYTES)
        raise ConfigError(f"layout.dtype: unknown type {dtype!r} (known: {known})")
    return layers * 2 * kv_heads * head_dim * ITEM_BYTES[dtype]
