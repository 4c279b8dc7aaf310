"""One chunk as one file: written whole under another name, then renamed.

A file under its own name was renamed there after its last byte was written, so a
process that is killed at any byte leaves a whole entry or none. What a power failure,
a full disk or bit rot makes of it is found by lengths and checksums::

    magic "GKVD" | version u16 | zero u16 | record header length u32
    payload length u64 | sequence u64
    record header (see record.py)
    xxh3-128 of everything above
    payload: the real KV, no filler

The payload's own checksums lie in the record header, one per layer group.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from geokv.cache.layout import ChunkLayout
from geokv.cache.record import MAX_HEADER_BYTES, ChunkHeader, checksums, parse
from geokv.errors import RecordError

MAGIC = b"GKVD"
FILE_VERSION = 1
SUFFIX = ".kv"
PARTIAL = ".partial"
_HEAD = struct.Struct("!4sHHIQQ")
_DIGEST_BYTES = 16
_write = os.write


@dataclass(frozen=True)
class DiskRecord:
    """The front of a file.

    Args:
        sequence: counts the writes of a tier; greater is later.
        payload_at: where the payload begins.
        payload_bytes: how long it is.
    """

    header: ChunkHeader
    sequence: int
    payload_at: int
    payload_bytes: int


def partial_path(path: Path) -> Path:
    """Where a file lies until it is whole."""
    return path.with_suffix(PARTIAL)


def write_partial(
    path: Path, header: ChunkHeader, payload: memoryview, sequence: int, sync: bool
) -> Path:
    """Write a whole file beside ``path``; returns where. ``finish`` gives it its name.

    Raises:
        OSError: the disk refuses; what was written is removed if that works.
    """
    packed = header.pack()
    front = _HEAD.pack(MAGIC, FILE_VERSION, 0, len(packed), len(payload), sequence) + packed
    digest = xxhash.xxh3_128(front).digest()
    partial = partial_path(path)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, (memoryview(front), memoryview(digest), payload))
        if sync:
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        remove_file(partial)
        raise
    # Some file systems tell of a failed write only here.
    os.close(descriptor)
    return partial


def finish(partial: Path, path: Path, sync: bool) -> None:
    """Give a whole file its name: from here on it is an entry.

    Raises:
        OSError: the disk refuses; no entry was made.
    """
    os.replace(partial, path)
    if sync:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_file(path: Path) -> OSError | None:
    """Remove a file that may be gone already; the error if it stays."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


def inspect_file(path: Path) -> DiskRecord:
    """Read the front of a file and see that its length is right.

    Raises:
        RecordError: not a whole file of this version with an intact header.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _front(descriptor)
    finally:
        os.close(descriptor)


def flip_bit(path: Path, bit: int) -> None:
    """Flip one bit of an entry's payload in place, as a medium that forgets would.

    Raises:
        RecordError: it is no entry.
        OSError: it cannot be read or written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        at = _front(descriptor).payload_at + bit // 8
        (byte,) = os.pread(descriptor, 1, at)
        os.pwrite(descriptor, bytes([byte ^ 1 << bit % 8]), at)
    finally:
        os.close(descriptor)


def read_file(path: Path, layout: ChunkLayout, into: memoryview) -> ChunkHeader:
    """Read a chunk of ``layout`` into ``into`` [real_bytes] and verify every byte.

    Raises:
        RecordError: anything is not as it was written, or the layout is another;
            ``into`` then holds whatever was read.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        record = _front(descriptor)
        if record.header.layout != layout.fingerprint or record.payload_bytes != len(into):
            raise RecordError("a chunk of another layout")
        done = 0
        while done < len(into):
            count = os.preadv(descriptor, [into[done:]], record.payload_at + done)
            if not count:
                raise RecordError(f"the payload ends after {done} of {len(into)} bytes")
            done += count
    finally:
        os.close(descriptor)
    if checksums(layout, into) != record.header.checksums:
        raise RecordError("the payload does not match its checksums")
    return record.header


def _front(descriptor: int) -> DiskRecord:
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        raise RecordError(f"only {size} bytes")
    magic, version, zero, header_bytes, payload_bytes, sequence = _HEAD.unpack(head)
    if magic != MAGIC or version != FILE_VERSION or zero or header_bytes > MAX_HEADER_BYTES:
        raise RecordError(f"not a chunk file of version {FILE_VERSION}")
    payload_at = _HEAD.size + header_bytes + _DIGEST_BYTES
    if size != payload_at + payload_bytes:
        raise RecordError(f"{size} bytes instead of {payload_at + payload_bytes}")
    rest = os.pread(descriptor, header_bytes + _DIGEST_BYTES, _HEAD.size)
    packed, digest = rest[:header_bytes], rest[header_bytes:]
    if xxhash.xxh3_128(head + packed).digest() != digest:
        raise RecordError("the header does not match its checksum")
    return DiskRecord(parse(packed), sequence, payload_at, payload_bytes)


def _write_all(descriptor: int, pieces: Sequence[memoryview]) -> None:
    for piece in pieces:
        done = 0
        while done < len(piece):
            done += _write(descriptor, piece[done:])
