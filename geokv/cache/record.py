"""The header of a chunk record: what travels in front of the KV, and its checks.

Each field is here because a public fault report shows what happens without it:
stale answers after a producer reused its blocks (generation), a restarted peer on
its old address (incarnation), garbage served with HTTP 200 (checksums), half-written
records taken for whole ones (length), reads outliving their lease (lease), other
models' and other tenants' blocks (fingerprints, tenant), colliding hashes (tokens).

Wire form, big endian::

    magic "GKVR" | version u16 | flags u16 | total length u32
    key 16 | parent 16 | model 16 | layout 16
    generation u64 | incarnation u64 | wire bytes u64 | lease ns u64
    epoch u64, where flag 2 is set
    tenant: u8 + UTF-8 | codec: u8 + ASCII
    groups u16, xxh3-128 each | tokens u32, u32 each

Writing, reading and checking stay in one file, although it is a long one: a field that one of the
three forgets is a wrong answer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import xxhash

from geokv.cache.filler import group_filler
from geokv.cache.keys import ChunkRef
from geokv.cache.layout import ChunkLayout
from geokv.errors import RecordError

MAGIC = b"GKVR"
VERSION = 1
MAX_HEADER_BYTES = 512 * 1024
CHECKSUM_BYTES = 16
_LOSSY = 1
_EPOCH = 2
_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
_PREFIX = struct.Struct("!4sHHI")
_FIXED = struct.Struct("!16s16s16s16sQQQQ")
_U64 = struct.Struct("!Q")


@dataclass(frozen=True)
class ChunkHeader:
    """Everything a receiver must know about a chunk before it may read it.

    Args:
        model, layout: 16-byte digests (``ChunkLayout.model_digest`` and ``.fingerprint``).
        generation: how often the sender had used the slot it sends from.
        incarnation: of the sending site's process.
        wire_bytes: length of the payload that follows, filler included.
        checksums: xxh3-128 over real and filler bytes, one per layer group.
        lease_ns: how long the sender keeps the chunk pinned for this read.
        lossy, codec: how the KV was coded; ``none`` is byte for byte.
        epoch: number of the tenant's last purge when this was computed.
    """

    key: bytes
    parent: bytes
    tenant: str
    model: bytes
    layout: bytes
    tokens: tuple[int, ...]
    generation: int
    incarnation: int
    wire_bytes: int
    checksums: tuple[bytes, ...]
    lease_ns: int = 0
    lossy: bool = False
    codec: str = "none"
    epoch: int = 0

    def stamped(self, generation: int, incarnation: int, lease_ns: int) -> ChunkHeader:
        """The same chunk as another site (or a later moment) sends it."""
        return replace(self, generation=generation, incarnation=incarnation, lease_ns=lease_ns)

    def with_checksums(self, sums: Sequence[bytes], lossy: bool) -> ChunkHeader:
        """The same chunk after its KV was made again, with the loss that cost."""
        if tuple(sums) == self.checksums and lossy == self.lossy:
            return self
        return replace(self, checksums=tuple(sums), lossy=lossy)

    def pack(self) -> bytes:
        """Wire form.

        Raises:
            RecordError: a field does not fit its place.
        """
        return self.pack_as(self.generation, self.incarnation, self.lease_ns)

    def pack_as(self, generation: int, incarnation: int, lease_ns: int) -> bytes:
        """Wire form of ``stamped`` with these; cheap for a chunk that is sent often.

        Raises:
            RecordError: a field does not fit its place.
        """
        try:
            fixed = _FIXED.pack(
                self.key,
                self.parent,
                self.model,
                self.layout,
                generation,
                incarnation,
                self.wire_bytes,
                lease_ns,
            )
        except struct.error:
            raise RecordError("a counter is negative or does not fit 64 bits") from None
        tail = self._tail
        total = _PREFIX.size + len(fixed) + len(tail)
        if total > MAX_HEADER_BYTES:
            raise RecordError(f"header has {total} bytes, more than {MAX_HEADER_BYTES}")
        flags = (_LOSSY if self.lossy else 0) | (_EPOCH if self.epoch else 0)
        return _PREFIX.pack(MAGIC, VERSION, flags, total) + fixed + tail

    @cached_property
    def _tail(self) -> bytes:
        """What is the same in every wire form of this chunk."""
        tenant, codec = self.tenant.encode(), self.codec.encode()
        if not 0 < len(tenant) < 256 or not 0 < len(codec) < 256:
            raise RecordError("tenant and codec must have 1 to 255 bytes")
        if not self.codec.isascii() or not self.codec.isprintable():
            raise RecordError(f"codec must be printable ASCII, got {self.codec!r}")
        digests = (self.key, self.parent, self.model, self.layout, *self.checksums)
        if any(len(digest) != 16 for digest in digests):
            raise RecordError("keys, fingerprints and checksums must have 16 bytes")
        if len(self.checksums) >= 2**16:
            raise RecordError("too many layer groups")
        try:
            tokens = struct.pack(f"!I{len(self.tokens)}I", len(self.tokens), *self.tokens)
        except struct.error:
            raise RecordError("a token id is negative or does not fit 32 bits") from None
        if not 0 <= self.epoch < 2**64:
            raise RecordError("an epoch is negative or does not fit 64 bits")
        return b"".join(
            (
                _U64.pack(self.epoch) if self.epoch else b"",
                bytes((len(tenant),)),
                tenant,
                bytes((len(codec),)),
                codec,
                struct.pack("!H", len(self.checksums)),
                *self.checksums,
                tokens,
            )
        )


def parse(data: bytes | memoryview, asked: ChunkRef | None = None) -> ChunkHeader:
    """Read a header that fills ``data`` exactly.

    Args:
        asked: what the header most likely is of: its token ids are compared as bytes, and
            read one by one only if they differ.

    Raises:
        RecordError: anything else than one whole, valid header.
    """
    raw = bytes(data)
    try:
        magic, version, flags, total = _PREFIX.unpack_from(raw)
        if magic != MAGIC:
            raise RecordError(f"not a chunk record: begins with {magic!r}")
        if version != VERSION:
            raise RecordError(f"record version {version}, this code reads {VERSION}")
        if flags & ~(_LOSSY | _EPOCH):
            raise RecordError(f"unknown flags {flags:#x}")
        if total != len(raw) or total > MAX_HEADER_BYTES:
            raise RecordError(f"header says {total} bytes, {len(raw)} are here")
        fixed = _FIXED.unpack_from(raw, _PREFIX.size)
        key, parent, model, layout, generation, incarnation, wire, lease = fixed
        at = _PREFIX.size + _FIXED.size
        epoch = 0
        if flags & _EPOCH:
            (epoch,) = _U64.unpack_from(raw, at)
            at += _U64.size
            if not epoch:
                raise RecordError("an epoch of 0 is not written")
        tenant, at = _text(raw, at, "utf-8")
        codec, at = _text(raw, at, "ascii")
        if not codec.isprintable():
            raise RecordError(f"codec must be printable ASCII, got {codec!r}")
        (groups,) = _U16.unpack_from(raw, at)
        at += _U16.size
        if groups * CHECKSUM_BYTES > len(raw) - at:
            raise IndexError
        sums = struct.unpack_from(f"{CHECKSUM_BYTES}s" * groups, raw, at)
        at += CHECKSUM_BYTES * groups
        (count,) = _U32.unpack_from(raw, at)
        at += _U32.size
        after = len(raw) - at - 4 * count
        if after > 0:
            raise RecordError(f"{after} bytes after the header")
        if asked is not None and not after and raw[at:] == asked.packed_tokens:
            tokens = asked.tokens
        else:
            tokens = struct.unpack_from(f"!{count}I", raw, at)
    except (struct.error, IndexError):
        raise RecordError(f"header ends after {len(raw)} bytes, in mid-field") from None
    return ChunkHeader(
        key=key,
        parent=parent,
        tenant=tenant,
        model=model,
        layout=layout,
        tokens=tokens,
        generation=generation,
        incarnation=incarnation,
        wire_bytes=wire,
        checksums=sums,
        lease_ns=lease,
        lossy=bool(flags & _LOSSY),
        codec=codec,
        epoch=epoch,
    )


def _text(raw: bytes, at: int, encoding: str) -> tuple[str, int]:
    """A name at ``at``, and where it ends."""
    end = at + 1 + raw[at]
    if end > len(raw):
        raise IndexError
    if end == at + 1:
        raise RecordError("an empty name in the header")
    try:
        return raw[at + 1 : end].decode(encoding), end
    except UnicodeDecodeError:
        raise RecordError(f"a name in the header is not {encoding}") from None


def verify(
    header: ChunkHeader,
    ref: ChunkRef,
    layout: ChunkLayout,
    incarnation: int | None = None,
    exact: bool = True,
) -> str | None:
    """Is this the chunk that was asked for? The cause of a miss, or ``None``.

    Args:
        incarnation: of the sender, as it said when it joined; ``None`` for a
            chunk of this site.
        exact: KV that lost something on its way is no answer.

    Returns:
        ``foreign`` (another tenant's), ``mismatch`` (another model, layout, codec,
        key or tokens), ``purged`` (of another epoch of its tenant), ``lossy``, ``stale``
        (an earlier life of the sender), or ``None``.
    """
    if header.tenant != ref.tenant:
        return "foreign"
    if header.epoch != ref.epoch:
        return "purged"
    if header.model != layout.model_digest or header.layout != layout.fingerprint:
        return "mismatch"
    if header.wire_bytes != layout.wire_bytes or len(header.checksums) != layout.groups:
        return "mismatch"
    if header.codec != "none":
        return "mismatch"
    if header.lossy and exact:
        return "lossy"
    if header.key != ref.key or header.parent != ref.parent or header.tokens != ref.tokens:
        return "mismatch"
    if incarnation is not None and header.incarnation != incarnation:
        return "stale"
    return None


def checksum(real: memoryview | bytes, fill: memoryview) -> bytes:
    """xxh3-128 of one layer group and the filler that follows it."""
    digest = xxhash.xxh3_128(real)
    digest.update(fill)
    return digest.digest()


def checksums(layout: ChunkLayout, payload: memoryview | bytes) -> tuple[bytes, ...]:
    """``checksum`` of each layer group of ``payload`` [real_bytes] with its filler."""
    view = memoryview(payload)
    return tuple(
        checksum(view[piece], fill)
        for piece, fill in zip(layout.group_slices, group_filler(layout), strict=True)
    )


def make_header(
    ref: ChunkRef, layout: ChunkLayout, sums: Sequence[bytes], generation: int, incarnation: int
) -> ChunkHeader:
    """Header of a chunk that this site has just computed."""
    return ChunkHeader(
        key=ref.key,
        parent=ref.parent,
        tenant=ref.tenant,
        model=layout.model_digest,
        layout=layout.fingerprint,
        tokens=ref.tokens,
        generation=generation,
        incarnation=incarnation,
        wire_bytes=layout.wire_bytes,
        checksums=tuple(sums),
        epoch=ref.epoch,
    )
