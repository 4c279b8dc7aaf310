"""Coded payload: what goes over the wire in place of a chunk's bytes, and back.

Filler stands for the KV of a bigger model, so it shrinks as the real KV does: a group
whose KV has become r times as long is followed by r times its filler. The record's own
checksums are of the KV before coding; each coded group has another one, so that nothing
unverified is given to a decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import xxhash

from geokv.cache.codec import CODECS, Codec, Shape
from geokv.cache.filler import group_filler
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader, checksum
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Segment
from geokv.errors import FetchError, RecordError

Coded: TypeAlias = tuple[tuple[wire.CodedGroup, ...], list[memoryview]]
"""What to say of each group, and the payload."""


def code(pieces: Sequence[memoryview], layout: ChunkLayout, codec: Codec) -> Coded | None:
    """``pieces`` (real KV and filler of each group), coded, and what to say of them;
    ``None`` if a group did not get shorter."""
    shape = Shape.of(layout)
    said: list[wire.CodedGroup] = []
    coded: list[memoryview] = []
    for real, fill in zip(pieces[::2], pieces[1::2], strict=True):
        data = codec.encode(real, shape)
        if data is None or len(data) >= len(real):
            return None
        short = fill[: len(fill) * len(data) // len(real)]
        said.append(wire.CodedGroup(len(data), len(short), checksum(data, short)))
        coded += [memoryview(data), short]
    return tuple(said), coded


class CodedPayload:
    """A coded answer on its way in.

    Args:
        groups: the layer groups that were asked for.
        into: where their KV belongs when it is decoded.
        exact: a lossy codec is refused.

    Attributes:
        places: what the payload is received into.
        plain_bytes: KV and filler before they were coded.

    Raises:
        FetchError: ``lossy``, or ``corrupt``: it is longer than what it stands for.
    """

    def __init__(
        self, said: wire.Coded, layout: ChunkLayout, groups: range, into: memoryview, exact: bool
    ) -> None:
        codec = CODECS.get(said.codec)
        if codec is None:
            raise FetchError("mismatch", f"codec {said.codec!r} is not known here")
        if codec.lossy and exact:
            raise FetchError("lossy", f"an answer coded with {said.codec} where exact was asked")
        sizes = [layout.group_bytes[group] for group in groups]
        if len(said.groups) != len(sizes) or any(
            not 0 < group.coded_bytes < real or not 0 <= group.filler_bytes <= fill
            for group, (real, fill) in zip(said.groups, sizes, strict=True)
        ):
            raise FetchError("corrupt", "a coded payload that is longer than what it stands for")
        self._codec = codec
        self._layout = layout
        self._numbers = groups
        self._said = said.groups
        self._into = into
        self._memory = [memoryview(bytearray(group.coded_bytes)) for group in said.groups]
        self._digests = [xxhash.xxh3_128() for _ in said.groups]
        self.plain_bytes = sum(map(sum, sizes))
        self.wire_bytes = sum(group.coded_bytes + group.filler_bytes for group in said.groups)
        self.places: list[Segment] = []
        for group, memory, digest in zip(said.groups, self._memory, self._digests, strict=True):
            self.places.append(Segment(group.coded_bytes, memory, digest.update))
            self.places.append(Segment(group.filler_bytes, None, digest.update))

    def decode(self, header: ChunkHeader) -> ChunkHeader | str:
        """Check, decode, check again.

        Returns:
            The header of what is in ``into`` now (after a lossy codec with its own
            checksums), or what is wrong.
        """
        sums = list(header.checksums)
        fillers = group_filler(self._layout)
        base = self._layout.group_slices[self._numbers[0]].start
        for at, number in enumerate(self._numbers):
            if self._digests[at].digest() != self._said[at].checksum:
                return f"checksum of coded layer group {number}"
            piece = self._layout.group_slices[number]
            real = self._into[piece.start - base : piece.stop - base]
            try:
                self._codec.decode(self._memory[at], Shape.of(self._layout), real)
            except RecordError as error:
                return f"layer group {number}: {error.message}"
            found = checksum(real, fillers[number])
            if self._codec.lossy:
                sums[number] = found
            elif found != sums[number]:
                return f"checksum of layer group {number} after decoding"
        return header.with_checksums(sums, header.lossy or self._codec.lossy)
