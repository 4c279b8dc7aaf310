"""Frames: the control language of a connection.

::

    type u8 | version u8 | reserved u16 | body length u32 | sequence u64 | CRC-32 u32
    body
    MAC 16 (BLAKE2b keyed over header and body; absent before the session has keys,
            and where TLS guards all of it)

Payload follows a CHUNK, CODED, PAYLOAD, DATA, WRITE or FILL frame raw; a chunk's
checksums are inside the MACed body. The CRC covers the 16 bytes before it: a length
that a flipped bit made huge is found before anybody waits for so many bytes. It does
not replace the MAC.

Longer than most: the whole language on one page, as its versions change it together.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TypeVar

import msgspec

from geokv.errors import RecordError

Message = TypeVar("Message", bound=msgspec.Struct)

VERSION = 2
MAC_BYTES = 16
MAX_BODY_BYTES = 1024 * 1024
MAX_HANDSHAKE_BYTES = 16 * 1024
_HEAD = struct.Struct("!BBHIQ")
_CRC = struct.Struct("!I")
_HEAD_AND_CRC = struct.Struct("!BBHIQI")
HEAD_BYTES = _HEAD_AND_CRC.size


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    CHALLENGE = 2
    JOIN = 3
    READY = 4
    REFUSED = 5
    GET = 16
    CHUNK = 17
    MISS = 18
    WARM = 19
    FILL = 20
    CALL = 21
    REPLY = 22
    CODED = 23
    OFFER = 24
    ACCEPT = 25
    PAYLOAD = 26
    DONE = 27
    READ = 28
    DATA = 29
    WRITE = 30
    NOTIFY = 31


_KINDS = {int(kind): kind for kind in Kind}
_OPEN = (Kind.HELLO, Kind.CHALLENGE)


class Get(msgspec.Struct, frozen=True, array_like=True):
    """Send me this chunk.

    Args:
        priority: of the answers that wait on a connection the lowest goes first.
        group: only this layer group's bytes follow the header; -1 for all of them.
        exact: KV that has lost something is no answer.
        codec: how the payload may be coded; ``CODED`` answers if it was.
    """

    id: int
    key: bytes
    tenant: str
    priority: int = 0
    group: int = -1
    exact: bool = True
    codec: str = "none"


class Miss(msgspec.Struct, frozen=True, array_like=True):
    """I will not, and why."""

    id: int
    cause: str


_CAUSES = frozenset(
    (
        "absent",
        "cancelled",
        "corrupt",
        "disk",
        "failed",
        "fenced",
        "foreign",
        "full",
        "lease",
        "lossy",
        "mismatch",
        "present",
        "purged",
        "refused",
        "stale",
        "timeout",
        "unauthorised",
        "unreachable",
    )
)


def known_cause(said: str) -> str:
    """A cause as a peer said it, for our counters: their names are not a peer's to make."""
    return said if said in _CAUSES else "refused"


class Warm(msgspec.Struct, frozen=True, array_like=True):
    """Send me so many bytes of filler; the answer is FILL with the same content."""

    id: int
    n_bytes: int


class Call(msgspec.Struct, frozen=True, array_like=True):
    """Run a handler."""

    id: int
    method: str
    body: bytes


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What the handler said; ``error`` is empty if it went well."""

    id: int
    error: str
    body: bytes


class CodedGroup(msgspec.Struct, frozen=True, array_like=True):
    """One layer group of a coded payload.

    Args:
        coded_bytes: length of the coded KV; so much filler follows it.
        checksum: xxh3-128 of both.
    """

    coded_bytes: int
    filler_bytes: int
    checksum: bytes


class Coded(msgspec.Struct, frozen=True, array_like=True):
    """As CHUNK, with a coded payload; ``header`` is that of the chunk before coding."""

    id: int
    codec: str
    header: bytes
    groups: tuple[CodedGroup, ...]


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """Will you keep this chunk? ACCEPT or MISS answers; PAYLOAD brings it."""

    id: int
    header: bytes


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """ACCEPT, PAYLOAD, DONE, DATA: what belongs to request ``id`` (and how many raw
    bytes follow)."""

    id: int
    n_bytes: int = 0


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of a registered segment; ``key`` shows that its owner disclosed it."""

    segment: int
    key: bytes
    offset: int
    n_bytes: int


class Access(msgspec.Struct, frozen=True, array_like=True):
    """READ: send me these places (DATA answers). WRITE: what follows is for them (DONE
    answers)."""

    id: int
    places: tuple[Place, ...]


class Notify(msgspec.Struct, frozen=True, array_like=True):
    """Something to know; nothing answers it."""

    notice: bytes


MESSAGES: Mapping[Kind, type[msgspec.Struct]] = MappingProxyType(
    {
        Kind.GET: Get,
        Kind.MISS: Miss,
        Kind.WARM: Warm,
        Kind.FILL: Warm,
        Kind.CALL: Call,
        Kind.REPLY: Reply,
        Kind.CODED: Coded,
        Kind.OFFER: Offer,
        Kind.ACCEPT: Ticket,
        Kind.PAYLOAD: Ticket,
        Kind.DONE: Ticket,
        Kind.READ: Access,
        Kind.DATA: Ticket,
        Kind.WRITE: Access,
        Kind.NOTIFY: Notify,
    }
)
"""What the body of each frame is, after the handshake; CHUNK alone is no message."""

_CHUNK_ID = struct.Struct("!Q")


def chunk_body(id_: int, header: bytes) -> bytes:
    """Body of a CHUNK frame: request id and packed record header."""
    return _CHUNK_ID.pack(id_) + header


def split_chunk(body: bytes) -> tuple[int, memoryview]:
    """Request id and packed header of a CHUNK body.

    Raises:
        RecordError: too short to hold an id.
    """
    if len(body) < _CHUNK_ID.size:
        raise RecordError("CHUNK frame without a request id")
    return _CHUNK_ID.unpack_from(body)[0], memoryview(body)[_CHUNK_ID.size :]


def encode(message: msgspec.Struct) -> bytes:
    """Body of a frame."""
    return msgspec.msgpack.encode(message)


def decode(body: bytes, kind: type[Message]) -> Message:
    """Message in a frame's body.

    Raises:
        RecordError: the body is not such a message.
    """
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"not a {kind.__name__} message ({error})") from None


class FrameCodec:
    """Sequence numbers and MACs of both directions of one connection.

    Args:
        keys: (to send with, to receive with); ``None`` before the two ends have proved
            their names, and where TLS guards the frames.
        proved: they have.
    """

    def __init__(self, keys: tuple[bytes, bytes] | None = None, *, proved: bool = False) -> None:
        send, receive = keys or (b"", b"")
        self._send_mac, self._receive_mac = _keyed(send), _keyed(receive)
        self._proved = proved or keys is not None
        self._sent = 0
        self._received = 0

    @property
    def mac_bytes(self) -> int:
        """Length of the MAC behind a received body; 0 where there is none."""
        return MAC_BYTES if self._receive_mac is not None else 0

    def pack(self, kind: Kind, body: bytes) -> bytes:
        """A whole frame, with the next sequence number.

        Raises:
            RecordError: the body is longer than a frame may be.
        """
        if len(body) > MAX_BODY_BYTES:
            raise RecordError(f"a frame of {len(body)} bytes, more than {MAX_BODY_BYTES}")
        head = _HEAD.pack(kind, VERSION, 0, len(body), self._sent)
        self._sent += 1
        frame = head + _CRC.pack(zlib.crc32(head)) + body
        if self._send_mac is None:
            return frame
        mac = self._send_mac.copy()
        mac.update(frame)
        return frame + mac.digest()

    def head(self, data: bytes | bytearray | memoryview) -> tuple[Kind, int]:
        """Kind and body length from the first ``HEAD_BYTES`` of a frame.

        Raises:
            RecordError: not the frame that must come next.
        """
        kind, version, reserved, length, sequence, crc = _HEAD_AND_CRC.unpack_from(data)
        if crc != zlib.crc32(data[: _HEAD.size]):
            raise RecordError("a frame header is damaged")
        if version != VERSION or reserved:
            raise RecordError(f"frame version {version}, this code speaks {VERSION}")
        if sequence != self._received:
            raise RecordError(f"frame {sequence} came where {self._received} must")
        known = _KINDS.get(kind)
        if known is None:
            raise RecordError(f"unknown frame kind {kind}")
        if (known in _OPEN) == self._proved:
            raise RecordError(f"a {known.name} frame at the wrong time")
        limit = MAX_BODY_BYTES if known >= Kind.GET else MAX_HANDSHAKE_BYTES
        if length > limit:
            raise RecordError(f"a frame of {length} bytes, more than {limit}")
        self._received += 1
        return known, length

    def opened(self, frame: bytes | memoryview) -> bytes:
        """Body of a whole frame, whose head was looked at; its MAC is checked.

        Raises:
            RecordError: damaged or forged.
        """
        if self._receive_mac is None:
            return bytes(frame[HEAD_BYTES:])
        mac = self._receive_mac.copy()
        mac.update(memoryview(frame)[:-MAC_BYTES])
        if not hmac.compare_digest(mac.digest(), frame[-MAC_BYTES:]):
            raise RecordError("a frame is damaged or forged")
        return bytes(frame[HEAD_BYTES:-MAC_BYTES])


def _keyed(key: bytes) -> hashlib.blake2b | None:
    return hashlib.blake2b(digest_size=MAC_BYTES, key=key) if key else None
