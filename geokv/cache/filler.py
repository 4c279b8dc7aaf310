"""The bytes that make a small model's chunk as long as a big model's.

They are deterministic and of high entropy (nothing on the way can compress them),
equal on every site and therefore never stored. They do cross the wire and they are
part of each group's checksum: a flipped filler bit is a corrupt chunk.
"""

from __future__ import annotations

import hashlib

from geokv.cache.layout import ChunkLayout

_SEED = b"geokv filler, version 1"
_made: bytes = b""


def filler(length: int) -> memoryview:
    """Read-only view of the first ``length`` filler bytes (one buffer per process).

    SHAKE-128 of a fixed seed: every length is a prefix of every greater one.
    """
    global _made
    if len(_made) < length:
        _made = hashlib.shake_128(_SEED).digest(length)
    return memoryview(_made)[:length]


def group_filler(layout: ChunkLayout) -> tuple[memoryview, ...]:
    """The filler that follows each layer group of a chunk; all views share one buffer."""
    longest = max(fill for _, fill in layout.group_bytes)
    whole = filler(longest)
    return tuple(whole[:fill] for _, fill in layout.group_bytes)
