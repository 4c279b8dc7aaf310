"""A chunk asked for by its key, and all that makes an answer to be it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import xxhash

from geokv.cache import record
from geokv.cache.codec_time import CodecTime
from geokv.cache.filler import group_filler
from geokv.cache.layout import ChunkLayout
from geokv.cache.record import ChunkHeader
from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.channel import Segment
from geokv.cache.substrate.tcp.coded import CodedPayload
from geokv.cache.substrate.tcp.request import Request, missed
from geokv.cache.substrate.tcp.wire import Kind
from geokv.cache.substrate.transport import Transfer
from geokv.clock import now_ns
from geokv.errors import FetchError, RecordError

# Groups without filler that are together no longer than this are received in one go
# and looked at afterwards, while they are still in the processor's cache.
_TOGETHER_BYTES = 256 * 1024


class GetRequest(Request):
    """A chunk by its key, or one layer group of it.

    Args:
        codecs: charge for decoding; None charges nothing.
    """

    def __init__(
        self,
        transfer: Transfer,
        layout: ChunkLayout,
        peer: str,
        incarnation: int,
        codec: str,
        codecs: CodecTime | None = None,
    ) -> None:
        super().__init__(transfer.deadline_ns, transfer.done)
        self.priority = transfer.priority
        self.transfer = transfer
        self._layout = layout
        self._peer = peer
        self._incarnation = incarnation
        self._codec = codec
        self._codecs = codecs
        self._header: ChunkHeader | None = None
        self._coded: CodedPayload | None = None
        self._hashers: list[Any] = []

    def ask(self) -> tuple[Kind, bytes, Sequence[memoryview]]:
        one = self.transfer
        get = wire.Get(
            self.id, one.ref.key, one.ref.tenant, one.priority, one.group, one.exact, self._codec
        )
        return Kind.GET, wire.encode(get), ()

    def sent(self) -> None:
        _ = self.transfer.ref.packed_tokens  # needed when the answer comes

    def take(self, kind: Kind, message: Any) -> Sequence[Segment] | None:
        if kind is Kind.MISS:
            self.outcome = missed(message, f"{self._peer} has no such chunk for us")
            return None
        if kind is Kind.CHUNK:
            self._header = self._checked(message)
            return self._raw_places()
        if kind is Kind.CODED and message.codec == self._codec != "none":
            self._header = self._checked(message.header)
            self._coded = CodedPayload(
                message, self._layout, self._groups, self.transfer.into, self.transfer.exact
            )
            self.transfer.wire_bytes = self._coded.wire_bytes
            return self._coded.places
        return super().take(kind, message)

    @property
    def _groups(self) -> range:
        return self._layout.chosen(self.transfer.group)

    def _checked(self, packed: bytes | memoryview) -> ChunkHeader:
        self.transfer.first_byte_ns = now_ns()
        one = self.transfer
        header = record.parse(packed, one.ref)
        cause = record.verify(header, one.ref, self._layout, self._incarnation, one.exact)
        if cause is not None:
            # Its length cannot be trusted either, so the connection ends with it.
            raise FetchError(cause, f"{self._peer} sent a chunk that was not asked for ({cause})")
        return header

    def _raw_places(self) -> list[Segment]:
        layout, into = self._layout, self.transfer.into
        group = self.transfer.group
        wire_bytes = layout.wire_bytes if group < 0 else sum(layout.group_bytes[group])
        self.transfer.wire_bytes = wire_bytes
        if wire_bytes == len(into) <= _TOGETHER_BYTES:
            return [Segment(wire_bytes, into)]
        places: list[Segment] = []
        fillers = group_filler(layout)
        start = layout.group_slices[self._groups[0]].start
        for group in self._groups:
            hasher = xxhash.xxh3_128()
            self._hashers.append(hasher)
            piece, fill = layout.group_slices[group], len(fillers[group])
            real = into[piece.start - start : piece.stop - start]
            places.append(Segment(len(real), real, hasher.update))
            places.append(Segment(fill, None, hasher.update))
        return places

    def whole(self) -> None:
        one, header = self.transfer, self._header
        if header is None:
            raise RecordError("a payload without a header")
        one.last_byte_ns = now_ns()
        if one.last_byte_ns - one.first_byte_ns > header.lease_ns:
            self.outcome = FetchError("lease", "the chunk came after its lease had ended")
            return
        if self._coded is None:
            self.outcome = self._compared(header)
        elif self._codecs is None:
            self.outcome = self._decoded(self._coded.decode(header))
        else:
            work = partial(self._coded.decode, header)
            n_bytes = self._coded.plain_bytes
            self.rest = self._codecs.decode(self._codec, n_bytes, one.priority, work)
            return
        one.verified_ns = now_ns()

    def rested(self, rest: asyncio.Future[Any]) -> None:
        error = rest.exception()
        self.outcome = self._decoded(rest.result()) if error is None else error
        self.transfer.verified_ns = now_ns()

    def _decoded(self, found: ChunkHeader | str) -> ChunkHeader | FetchError:
        if isinstance(found, str):
            return FetchError("corrupt", f"from {self._peer}: {found}")
        return found

    def _compared(self, header: ChunkHeader) -> ChunkHeader | FetchError:
        if self._hashers:
            sums = [hasher.digest() for hasher in self._hashers]
        else:
            slices = [self._layout.group_slices[group] for group in self._groups]
            base, into = slices[0].start, self.transfer.into
            sums = [
                xxhash.xxh3_128_digest(into[piece.start - base : piece.stop - base])
                for piece in slices
            ]
        for group, got in zip(self._groups, sums, strict=True):
            if got != header.checksums[group]:
                return FetchError("corrupt", f"from {self._peer}: checksum of layer group {group}")
        return header

    def lease_ended(self) -> bool:
        """Could the lease of the answer be why the connection ended?"""
        header, first = self._header, self.transfer.first_byte_ns
        return header is not None and now_ns() - first > header.lease_ns
