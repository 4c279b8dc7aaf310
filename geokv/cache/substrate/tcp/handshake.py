"""Mutual authentication: who is there is proved before anything else is said.

::

    client  HELLO      nonce, site
    server  CHALLENGE  nonce, MAC(pair key, "server", transcript)
    client  JOIN       incarnation, layout                        frames with a MAC
    server  READY      incarnation, layout    or REFUSED cause    from here on

The transcript is the client's frame byte for byte, the server's nonce and both names.
One key per direction comes from the key of the two sites and the transcript: a frame
of one connection is worth nothing on another, and JOIN's own MAC is the client's proof.

A stranger learns nothing. Whatever name it gives and whatever it sends, it gets 64
bytes that look random and then a closed connection; the work done for it is the same
for a known and an unknown name. Site, incarnation and layout are said to peers only.

Both ends are in one module: each line of one is only right beside that of the other.

With TLS the same two last frames follow the TLS handshake, whose certificates have
proved both names (``tls``); frames then have no MAC of their own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from geokv.cache.convert import refusals
from geokv.cache.layout import ChunkLayout
from geokv.cache.substrate.tcp.certificates import TlsFiles
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.keyring import Keyring
from geokv.cache.substrate.tcp.tls import make_context, start_tls
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, FrameCodec, Kind, decode, encode
from geokv.errors import ConfigError, FetchError, RecordError

NONCE_BYTES = 32
Security = Literal["mac", "tls"]
Mixed = Literal["refuse", "convert"]


@dataclass(frozen=True)
class Identity:
    """Who this site is, and what it can prove.

    Args:
        incarnation: greater than in any earlier life of this site.
        keys: of the pairs this site is part of.
        nonce: source of unpredictable bytes.
        security: ``mac`` (authenticated, readable) or ``tls`` (also encrypted).
        mixed: what to do with a peer whose chunks lie otherwise: refuse it, or
            accept it where ``convert`` can make its chunks ours.

    Raises:
        ConfigError: the keys are another site's, or TLS is asked for without
            certificates.
    """

    site: str
    incarnation: int
    layout: ChunkLayout
    keys: Keyring
    nonce: Callable[[int], bytes] = secrets.token_bytes
    security: Security = "mac"
    mixed: Mixed = "refuse"

    def __post_init__(self) -> None:
        if self.security not in ("mac", "tls"):
            raise ConfigError(f"substrate.security: must be mac or tls, got {self.security!r}")
        if self.mixed not in ("refuse", "convert"):
            raise ConfigError(f"cache.mixed: must be refuse or convert, got {self.mixed!r}")
        if self.keys.site != self.site:
            raise ConfigError(f"keys of site {self.keys.site!r} were given to {self.site!r}")
        if self.security == "tls":
            _ = self.client_context, self.server_context

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """For the connections this site opens."""
        return make_context(self.tls, server=False)

    @cached_property
    def server_context(self) -> ssl.SSLContext:
        """For the connections this site accepts."""
        return make_context(self.tls, server=True)

    @property
    def tls(self) -> TlsFiles:
        """Certificates.

        Raises:
            ConfigError: there are none.
        """
        if self.keys.tls is None:
            raise ConfigError(
                f"substrate.security: tls, but site {self.site!r} has no certificate",
                "deal the keys with tls=True",
            )
        return self.keys.tls


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who wants to be let in."""

    nonce: bytes
    site: str


class Challenge(msgspec.Struct, frozen=True, array_like=True):
    """Freshness of the server, and its proof."""

    nonce: bytes
    mac: bytes


class Joined(msgspec.Struct, frozen=True, array_like=True):
    """What each side says of itself, to a peer that has proved its name."""

    incarnation: int
    layout: dict[str, Any]


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """No session, and why."""

    cause: str
    message: str


MESSAGES: Mapping[Kind, type[msgspec.Struct]] = MappingProxyType(
    {
        Kind.HELLO: Hello,
        Kind.CHALLENGE: Challenge,
        Kind.JOIN: Joined,
        Kind.READY: Joined,
        Kind.REFUSED: Refused,
    }
)
"""What the body of each frame of the handshake is."""


@dataclass(frozen=True)
class Session:
    """An authenticated connection.

    Attributes:
        layout: how the peer's chunks lie; another than ours only with ``mixed: convert``.
    """

    peer: str
    incarnation: int
    codec: FrameCodec
    layout: ChunkLayout


async def receive_frame(channel: Channel, codec: FrameCodec) -> tuple[Kind, bytes]:
    """The next frame, checked.

    Raises:
        RecordError: it is damaged, forged or out of order.
        FetchError: the connection ended.
    """
    head = await channel.receive_bytes(HEAD_BYTES)
    kind, length = codec.head(head)
    rest = await channel.receive_bytes(length + codec.mac_bytes)
    return kind, codec.opened(head + rest)


async def greet(channel: Channel, me: Identity, expected: str) -> Session:
    """Client side. The caller sets the deadline.

    Raises:
        FetchError: ``unauthorised`` (whoever answers cannot prove to be ``expected``,
            or does not believe us), ``mismatch`` (layouts differ; both values named),
            ``unreachable``.
    """
    try:
        if me.security == "tls":
            codec = await _greet_tls(channel, me, expected)
        else:
            codec = await _greet_mac(channel, me, expected)
        channel.write([codec.pack(Kind.JOIN, _joined(me))])
        theirs = decode(await _expect(channel, codec, Kind.READY), Joined)
    except RecordError as error:
        raise FetchError(
            "unreachable", f"{expected} does not speak our protocol: {error}"
        ) from None
    layout = _check_layout(me, expected, theirs)
    return Session(expected, theirs.incarnation, codec, layout)


async def admit(channel: Channel, me: Identity) -> Session:
    """Server side. The caller sets the deadline, and closes the channel on any error.

    Raises:
        FetchError: as ``greet``. Only a peer that has proved its name is told why.
    """
    try:
        if me.security == "tls":
            peer, codec = await _admit_tls(channel, me)
        else:
            peer, codec = await _admit_mac(channel, me)
        theirs = decode(await _prove(channel, codec), Joined)
        if not me.keys.knows(peer):
            raise RecordError("no key is known for the name it gave")
    except RecordError as error:
        raise FetchError("unauthorised", f"a stranger was turned away: {error.message}") from None
    try:
        layout = _check_layout(me, peer, theirs)
    except FetchError as error:
        refusal = Refused(error.cause, error.message)
        channel.write([codec.pack(Kind.REFUSED, encode(refusal))])
        raise
    channel.write([codec.pack(Kind.READY, _joined(me))])
    return Session(peer, theirs.incarnation, codec, layout)


async def _greet_mac(channel: Channel, me: Identity, expected: str) -> FrameCodec:
    codec = FrameCodec()
    hello = encode(Hello(me.nonce(NONCE_BYTES), me.site))
    channel.write([codec.pack(Kind.HELLO, hello)])
    theirs = decode(await _expect(channel, codec, Kind.CHALLENGE), Challenge)
    proofs = _Proofs(me.keys.key(expected), expected, hello, theirs.nonce)
    if not hmac.compare_digest(theirs.mac, proofs.server) or not me.keys.knows(expected):
        raise FetchError(
            "unauthorised",
            f"whoever answers at the address of {expected!r} does not have the key of "
            f"{me.site!r} and {expected!r}",
            "check the address, and deal the keys of all sites from one secret",
        )
    return FrameCodec(proofs.keys)


async def _admit_mac(channel: Channel, me: Identity) -> tuple[str, FrameCodec]:
    codec = FrameCodec()
    hello = await _expect(channel, codec, Kind.HELLO)
    theirs = decode(hello, Hello)
    nonce = me.nonce(NONCE_BYTES)
    proofs = _Proofs(me.keys.key(theirs.site), me.site, hello, nonce)
    channel.write([codec.pack(Kind.CHALLENGE, encode(Challenge(nonce, proofs.server)))])
    receive, send = proofs.keys
    return theirs.site, FrameCodec((send, receive))


async def _greet_tls(channel: Channel, me: Identity, expected: str) -> FrameCodec:
    peer = await start_tls(channel, me.client_context, me.tls)
    if peer != expected:
        raise FetchError("unauthorised", f"{peer!r} answers at the address of {expected!r}")
    return FrameCodec(proved=True)


async def _admit_tls(channel: Channel, me: Identity) -> tuple[str, FrameCodec]:
    return await start_tls(channel, me.server_context, me.tls), FrameCodec(proved=True)


class _Proofs:
    """What the two ends derive from their key and the first two frames."""

    def __init__(self, key: bytes, server: str, hello: bytes, nonce: bytes) -> None:
        transcript = b"".join(
            len(part).to_bytes(4, "big") + part for part in (hello, nonce, server.encode())
        )

        def derive(purpose: bytes) -> bytes:
            return hashlib.blake2b(
                transcript, digest_size=32, key=key, person=b"geokv-" + purpose
            ).digest()

        self.server = derive(b"server")
        self.keys = (derive(b"to-server"), derive(b"to-client"))


async def _prove(channel: Channel, codec: FrameCodec) -> bytes:
    try:
        return await _expect(channel, codec, Kind.JOIN)
    except FetchError as error:
        if error.cause != "unreachable":
            raise
        raise FetchError(
            "unauthorised", f"who had asked to be let in gave no proof: {error.message}"
        ) from None


def _joined(me: Identity) -> bytes:
    return encode(Joined(me.incarnation, me.layout.as_dict()))


async def _expect(channel: Channel, codec: FrameCodec, kind: Kind) -> bytes:
    got, body = await receive_frame(channel, codec)
    if got is Kind.REFUSED:
        refusal = decode(body, Refused)
        cause = refusal.cause if refusal.cause in {"unauthorised", "mismatch"} else "unreachable"
        raise FetchError(cause, f"refused by the peer: {refusal.message}")
    if got is not kind:
        raise RecordError(f"a {got.name} frame came where {kind.name} must")
    return body


def _check_layout(me: Identity, peer: str, theirs: Joined) -> ChunkLayout:
    """The peer's layout, if its chunks can be ours."""
    differing = me.layout.mismatch(theirs.layout)
    if not differing:
        return me.layout
    hint = "run both sites with the same model, block and chunk sizes and byte scale"
    if me.mixed == "convert":
        try:
            layout = ChunkLayout.from_dict(theirs.layout)
            differing = refusals(me.layout, layout)
        except ConfigError as error:
            differing = [error.message]
        else:
            if not differing:
                return layout
    raise FetchError(
        "mismatch",
        f"chunk layouts of {me.site!r} and {peer!r} differ: {'; '.join(differing)}",
        hint,
    )
