"""Memory as agents speak of it: segments, stretches of them, and what a blob says to others.

NIXL's names; who registers, prepares and posts is in ``agent.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from geokv.errors import CacheError

MemoryKind = Literal["DRAM", "VRAM", "BLK", "FILE", "OBJ"]
BLOB_VERSION = 1


@dataclass(frozen=True, eq=False)
class Segment:
    """Registered memory of this agent.

    Args:
        key: who names the segment must show it; only the blob carries it.
        tenant: whose it is; empty for what any peer may know of.
    """

    id: int
    kind: MemoryKind
    view: memoryview = field(repr=False)
    address: int
    key: bytes = field(repr=False)
    tenant: str = ""

    def at(self, offset: int, length: int) -> Descriptor:
        """A stretch of it; looked at when a transfer is prepared."""
        return Descriptor(self.id, offset, length)


class RemoteSegment(msgspec.Struct, frozen=True, array_like=True):
    """What a blob says of a segment."""

    id: int
    kind: MemoryKind
    address: int
    length: int
    key: bytes


class Blob(msgspec.Struct, frozen=True, array_like=True):
    """Metadata of an agent: how to reach it, and the segments the reader may use.

    Args:
        incarnation: greater than in any earlier life of the agent.
        backend: name of the engine that ``private`` is for.
    """

    version: int
    name: str
    incarnation: int
    backend: str
    private: bytes
    segments: tuple[RemoteSegment, ...]


@dataclass(frozen=True)
class Descriptor:
    """``length`` bytes at ``offset`` of a segment."""

    segment: int
    offset: int
    length: int


@dataclass(frozen=True)
class DescriptorList:
    """Descriptors of one memory kind, in order."""

    items: tuple[Descriptor, ...]
    kind: MemoryKind = "DRAM"

    @classmethod
    def of(cls, *items: Descriptor, kind: MemoryKind = "DRAM") -> DescriptorList:
        """A list of these."""
        return cls(items, kind)


@dataclass(frozen=True)
class Remote:
    """Another agent, as its blob described it."""

    name: str
    incarnation: int
    private: bytes
    segments: dict[int, RemoteSegment]


@dataclass(frozen=True)
class Pair:
    """One stretch of local memory and its counterpart."""

    segment: Segment
    offset: int
    remote: RemoteSegment
    remote_offset: int
    length: int

    @property
    def view(self) -> memoryview:
        """The local bytes, ``[length]``."""
        return self.segment.view[self.offset : self.offset + self.length]


def address_of(view: memoryview) -> int:
    """Where memory begins in this process."""
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def check_range(one: Descriptor, length: int, whose: str) -> None:
    """Raises ``CacheError`` if the stretch is not within the ``length`` bytes of its segment."""
    if one.length < 1 or one.offset < 0 or one.offset + one.length > length:
        raise CacheError(
            f"{one.length} bytes at {one.offset} of segment {one.segment} of {whose!r}, "
            f"which has {length}"
        )
