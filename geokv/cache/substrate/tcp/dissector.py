"""geokv's frames for scapy: what two sites say to each other, from packets of a link.

::

    for one in read_capture("link.pcap"):
        print(one.time_ns, one.client, one.to_server, one.name, one.packet.summary())

``explain(one.packet)`` is what a frame says, as a mapping. ``GeokvFrame`` is a scapy packet, with
one layer more for each kind of body; chunks show their record header field by field and the
payload's length. TCP segments are put back in order first: lost ones come twice, and a frame seldom
ends where a segment does. Sites that use TLS are shown as connections of which nothing can be read.

Longer than most modules: the layers are declarations, in the order in which they lie in a frame.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geokv.cache.layout import ChunkLayout
from geokv.cache.record import MAX_HEADER_BYTES, parse
from geokv.cache.substrate.tcp import handshake, wire
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, MAC_BYTES, Kind, decode
from geokv.errors import ConfigError, RecordError

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.fields import (  # noqa: E402
    ByteEnumField,
    ByteField,
    ConditionalField,
    FieldLenField,
    FieldListField,
    IntField,
    LongField,
    ShortField,
    StrFixedLenField,
    StrLenField,
    XIntField,
    XStrFixedLenField,
    XStrLenField,
)
from scapy.packet import Packet  # noqa: E402

KV_PORT = 7000
_TLS_RECORD = (20, 21, 22, 23)
_MESSAGES = {**handshake.MESSAGES, **wire.MESSAGES}


class GeokvFrame(Packet):  # type: ignore[misc]
    """Twenty bytes in front of every body."""

    name = "geokv"
    fields_desc = (
        ByteEnumField("kind", 0, {kind.value: kind.name for kind in Kind}),
        ByteField("version", wire.VERSION),
        ShortField("reserved", 0),
        IntField("body_bytes", 0),
        LongField("sequence", 0),
        XIntField("crc", 0),
    )

    def guess_payload_class(self, payload: bytes) -> Any:
        """A record behind CHUNK, a body behind any other kind."""
        return GeokvRecord if self.kind == Kind.CHUNK else GeokvBody

    def mysummary(self) -> str:
        """Kind and sequence number."""
        return f"geokv {Kind(self.kind).name} #{self.sequence}"


class GeokvBody(Packet):  # type: ignore[misc]
    """Body of any frame but CHUNK: msgpack, then the MAC if there is one."""

    name = "geokv body"
    fields_desc = (
        XStrLenField("body", b"", length_from=lambda one: _body_bytes(one)),
        XStrLenField("mac", b"", length_from=lambda one: _mac_bytes(one)),
    )

    @property
    def message(self) -> Any:
        """The body's struct; ``None`` if it is not one."""
        try:
            return decode(bytes(self.body), _MESSAGES[Kind(self.underlayer.kind)])
        except (RecordError, KeyError):
            return None

    def mysummary(self) -> str:
        """The message in words."""
        message = self.message
        return _short(message) if message is not None else "unreadable body"

    def extract_padding(self, rest: bytes) -> tuple[bytes, bytes]:
        """What follows is the next frame."""
        return b"", rest


class GeokvRecord(Packet):  # type: ignore[misc]
    """Body of a CHUNK: request, record header (``geokv.cache.record``) and MAC."""

    name = "geokv record"
    fields_desc = (
        LongField("request", 0),
        StrFixedLenField("magic", b"GKVR", 4),
        ShortField("version", 1),
        ShortField("flags", 0),
        IntField("header_bytes", 0),
        XStrFixedLenField("key", b"", 16),
        XStrFixedLenField("parent", b"", 16),
        XStrFixedLenField("model", b"", 16),
        XStrFixedLenField("layout", b"", 16),
        LongField("generation", 0),
        LongField("incarnation", 0),
        LongField("wire_bytes", 0),
        LongField("lease_ns", 0),
        ConditionalField(LongField("epoch", 0), lambda one: one.flags & 2),
        FieldLenField("tenant_bytes", None, "tenant", "B"),
        StrLenField("tenant", b"", length_from=lambda one: one.tenant_bytes),
        FieldLenField("codec_bytes", None, "codec", "B"),
        StrLenField("codec", b"", length_from=lambda one: one.codec_bytes),
        FieldLenField("groups", None, fmt="H", count_of="checksums"),
        FieldListField(
            "checksums",
            [],
            XStrFixedLenField("checksum", b"", 16),
            count_from=lambda one: one.groups,
            max_count=2**16,
        ),
        FieldLenField("token_count", None, fmt="I", count_of="tokens"),
        FieldListField(
            "tokens",
            [],
            IntField("token", 0),
            count_from=lambda one: one.token_count,
            max_count=MAX_HEADER_BYTES // 4,
        ),
        XStrLenField("mac", b"", length_from=lambda one: MAC_BYTES),
    )

    def mysummary(self) -> str:
        """Whose chunk, how long, and for which request."""
        return (
            f"request={self.request} key={bytes(self.key).hex()[:8]} "
            f"tenant={bytes(self.tenant).decode(errors='replace')} tokens={self.token_count} "
            f"wire_bytes={self.wire_bytes}"
        )

    def extract_padding(self, rest: bytes) -> tuple[bytes, bytes]:
        """What follows is the chunk's payload."""
        return b"", rest


@dataclass(frozen=True)
class Seen:
    """One frame, or a stretch that is none.

    Attributes:
        time_ns: when the packet with its last byte (payload not counted) was seen, of
            the capture's clock.
        client: address and port of whoever connected.
        name: kind of the frame, or ``TLS``, or ``unreadable``.
        packet: the frame; ``None`` where there is none.
        payload_bytes: raw bytes that follow it.
    """

    time_ns: int
    client: tuple[str, int]
    to_server: bool
    name: str
    packet: Packet | None
    payload_bytes: int = 0


@dataclass
class _Conversation:
    """What both directions of a connection must know of each other."""

    layout: ChunkLayout | None = None
    groups: dict[int, int] = field(default_factory=dict)


class Direction:
    """Frames of one direction of one connection, from its bytes in order."""

    def __init__(self, conversation: _Conversation) -> None:
        self._conversation = conversation
        self._bytes = bytearray()
        self._skip = 0
        self._lost = False

    def feed(self, data: bytes) -> Iterator[tuple[str, Packet | None, int]]:
        """(name, frame, bytes of payload behind it) of each frame that ends in ``data``."""
        self._bytes += data
        while not self._lost:
            skipped = min(self._skip, len(self._bytes))
            del self._bytes[:skipped]
            self._skip -= skipped
            if self._skip or len(self._bytes) < HEAD_BYTES:
                return
            whole = self._whole()
            if whole is None:
                self._lost = True
                yield ("TLS" if self._bytes[0] in _TLS_RECORD else "unreadable"), None, 0
                return
            if len(self._bytes) < whole:
                return
            packet = GeokvFrame(bytes(self._bytes[:whole]))
            del self._bytes[:whole]
            if GeokvRecord not in packet and GeokvBody not in packet:
                self._lost = True
                yield "unreadable", None, 0
                return
            self._skip = self._payload_bytes(packet)
            yield Kind(packet.kind).name, packet, self._skip

    def _whole(self) -> int | None:
        """Bytes of the frame that begins here; ``None`` if none does."""
        head = GeokvFrame(bytes(self._bytes[:HEAD_BYTES]))
        known = head.kind in Kind._value2member_map_
        if not known or head.version != wire.VERSION or head.reserved:
            return None
        if head.body_bytes > wire.MAX_BODY_BYTES:
            return None
        return int(HEAD_BYTES + head.body_bytes + _mac_of(head))

    def _payload_bytes(self, packet: Packet) -> int:
        kind, talk = Kind(packet.kind), self._conversation
        if kind is Kind.CHUNK:
            record = packet[GeokvRecord]
            group = talk.groups.pop(record.request, -1)
            if group >= 0 and talk.layout is not None:
                return sum(talk.layout.group_bytes[group])
            return int(record.wire_bytes)
        message = packet[GeokvBody].message
        if message is None:
            return 0
        if kind is Kind.GET and message.group >= 0:
            talk.groups[message.id] = message.group
        elif kind is Kind.READY:
            try:
                talk.layout = ChunkLayout.from_dict(message.layout)
            except ConfigError:
                talk.layout = None
        elif kind in (Kind.FILL, Kind.PAYLOAD, Kind.DATA):
            return int(message.n_bytes)
        elif kind is Kind.CODED:
            return sum(one.coded_bytes + one.filler_bytes for one in message.groups)
        elif kind is Kind.WRITE:
            return sum(place.n_bytes for place in message.places)
        return 0


class _Ordered:
    """Bytes of a TCP direction in order, whatever is lost, doubled or overtaken."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._early: dict[int, bytes] = {}

    def take(self, sequence: int, syn: bool, data: bytes) -> bytes:
        if self._next is None or syn:
            self._next = sequence + syn & 0xFFFFFFFF
        if data:
            self._early[sequence + syn & 0xFFFFFFFF] = data
        ready = bytearray()
        moved = True
        while moved:
            moved = False
            for start, held in list(self._early.items()):
                behind = (self._next - start) & 0xFFFFFFFF
                if behind >= 2**31:
                    continue
                del self._early[start]
                ready += held[behind:]
                self._next = (self._next + len(held[behind:])) & 0xFFFFFFFF
                moved = True
        return bytes(ready)


def read_capture(path: Path | str, port: int = KV_PORT) -> Iterator[Seen]:
    """Every frame to and from KV servers, in the order of their last bytes.

    Raises:
        ConfigError: the file is missing or no capture.
    """
    from scapy.error import Scapy_Exception
    from scapy.layers.inet import IP, TCP
    from scapy.layers.l2 import Ether
    from scapy.utils import RawPcapReader

    directions: dict[tuple[str, int, bool], tuple[_Ordered, Direction]] = {}
    talks: dict[tuple[str, int], _Conversation] = {}
    try:
        reader = RawPcapReader(str(path))
    except (OSError, Scapy_Exception) as error:
        raise ConfigError(f"{path}: cannot be read as a capture ({error})") from None
    with reader:
        for raw, stamp in reader:
            ether = Ether(raw)
            if TCP not in ether or port not in (ether[TCP].sport, ether[TCP].dport):
                continue
            ip, tcp = ether[IP], ether[TCP]
            to_server = tcp.dport == port
            client = (ip.src, tcp.sport) if to_server else (ip.dst, tcp.dport)
            key = (*client, to_server)
            if key not in directions or "S" in tcp.flags:
                if to_server or client not in talks:
                    talks[client] = _Conversation()
                directions[key] = (_Ordered(), Direction(talks[client]))
            ordered, direction = directions[key]
            data = bytes(tcp.payload)[: ip.len - 4 * ip.ihl - 4 * tcp.dataofs]
            per_second = 1 if reader.nano else 1000
            time_ns = stamp.sec * 10**9 + stamp.usec * per_second
            for name, packet, behind in direction.feed(
                ordered.take(tcp.seq, "S" in tcp.flags, data)
            ):
                yield Seen(time_ns, client, to_server, name, packet, behind)


def explain(packet: Packet) -> dict[str, Any]:
    """What a frame says, by name: of a CHUNK its record header, of others their message."""
    if packet.kind == Kind.CHUNK:
        one = packet[GeokvRecord]
        packed = bytes(one)[8 : 8 + one.header_bytes]
        return {"request": one.request, **vars(parse(packed))}
    message = packet[GeokvBody].message
    return {name: getattr(message, name) for name in getattr(message, "__struct_fields__", ())}


def _short(message: Any) -> str:
    parts = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, bytes):
            value = f"{value.hex()[:8]}… ({len(value)} bytes)" if len(value) > 4 else value.hex()
        parts.append(f"{name}={value}")
    return " ".join(parts)


def _mac_of(head: Packet) -> int:
    return 0 if head.kind in (Kind.HELLO, Kind.CHALLENGE) else MAC_BYTES


def _body_bytes(body: Packet) -> int:
    return int(body.underlayer.body_bytes)


def _mac_bytes(body: Packet) -> int:
    return _mac_of(body.underlayer)
