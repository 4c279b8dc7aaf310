"""Mutual authentication: each side proves the deployment's secret to the other.

::

    client  HELLO      nonce, site, incarnation, layout
    server  CHALLENGE  nonce, site, incarnation, layout
    client  PROOF      MAC(secret, "client", transcript)
    server  READY      MAC(secret, "server", transcript)   or   REFUSED cause

The transcript is both first frames, byte for byte, so nothing in them can be changed
by anybody without the secret. Session keys, one per direction, come from the same
transcript: a frame of one connection is worth nothing on another. The server proves
itself last, after it knows that the client is no stranger.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from geokv.cache.layout import ChunkLayout
from geokv.cache.substrate.tcp.channel import Channel
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, FrameCodec, Kind, decode, encode
from geokv.errors import ConfigError, FetchError, RecordError

MIN_SECRET_BYTES = 16
NONCE_BYTES = 32


@dataclass(frozen=True)
class Identity:
    """Who this site is, and what it can prove.

    Args:
        secret: the deployment's, at least 16 bytes.
        incarnation: greater than in any earlier life of this site.
        nonce: source of unpredictable bytes.

    Raises:
        ConfigError: the secret is too short.
    """

    site: str
    incarnation: int
    layout: ChunkLayout
    secret: bytes
    nonce: Callable[[int], bytes] = secrets.token_bytes

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_SECRET_BYTES:
            raise ConfigError(
                f"secret: must have at least {MIN_SECRET_BYTES} bytes, got {len(self.secret)}"
            )


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """What each side says of itself."""

    nonce: bytes
    site: str
    incarnation: int
    layout: dict[str, Any]


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """Knowledge of the secret."""

    mac: bytes


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """No session, and why."""

    cause: str
    message: str


@dataclass(frozen=True)
class Session:
    """An authenticated connection."""

    peer: str
    incarnation: int
    codec: FrameCodec


async def receive_frame(channel: Channel, codec: FrameCodec) -> tuple[Kind, bytes]:
    """The next frame, checked.

    Raises:
        RecordError: it is damaged, forged or out of order.
        FetchError: the connection ended.
    """
    head = await channel.receive_bytes(HEAD_BYTES)
    kind, length = codec.head(head)
    rest = await channel.receive_bytes(length + codec.mac_bytes)
    return kind, codec.body(head, rest)


async def greet(channel: Channel, me: Identity, expected: str) -> Session:
    """Client side. The caller sets the deadline.

    Raises:
        FetchError: ``unauthorised`` (either secret is wrong, or another site answers
            than ``expected``), ``mismatch`` (layouts differ; both values named),
            ``unreachable``.
    """
    codec = FrameCodec()
    mine = _hello(me)
    channel.write([codec.pack(Kind.HELLO, mine)])
    try:
        their_bytes = await _expect(channel, codec, Kind.CHALLENGE)
        theirs = decode(their_bytes, Hello)
        proofs = _Proofs(me.secret, mine, their_bytes)
        channel.write([codec.pack(Kind.PROOF, encode(Proof(proofs.client)))])
        answer = decode(await _expect(channel, codec, Kind.READY), Proof)
    except RecordError as error:
        raise FetchError(
            "unreachable", f"{expected} does not speak our protocol: {error}"
        ) from None
    if not hmac.compare_digest(answer.mac, proofs.server):
        raise FetchError(
            "unauthorised",
            f"{expected} does not know the deployment's secret",
            "give every site the same secret",
        )
    if theirs.site != expected:
        raise FetchError("unauthorised", f"{theirs.site!r} answers at the address of {expected!r}")
    _check_layout(me, theirs)
    return Session(theirs.site, theirs.incarnation, FrameCodec(proofs.keys))


async def admit(channel: Channel, me: Identity) -> Session:
    """Server side. The caller sets the deadline, and closes the channel on any error.

    Raises:
        FetchError: as ``greet``; the client has been told.
    """
    codec = FrameCodec()
    mine = _hello(me)
    try:
        their_bytes = await _expect(channel, codec, Kind.HELLO)
        theirs = decode(their_bytes, Hello)
        channel.write([codec.pack(Kind.CHALLENGE, mine)])
        proofs = _Proofs(me.secret, their_bytes, mine)
        proof = decode(await _expect(channel, codec, Kind.PROOF), Proof)
    except RecordError as error:
        raise FetchError(
            "unauthorised", f"a stranger does not speak our protocol: {error}"
        ) from None
    try:
        if not hmac.compare_digest(proof.mac, proofs.client):
            raise FetchError(
                "unauthorised",
                f"{theirs.site!r} does not know the secret of {me.site!r}",
                "give every site the same secret",
            )
        _check_layout(me, theirs)
    except FetchError as error:
        refusal = Refused(error.cause, error.message)
        channel.write([codec.pack(Kind.REFUSED, encode(refusal))])
        raise
    channel.write([codec.pack(Kind.READY, encode(Proof(proofs.server)))])
    receive, send = proofs.keys
    return Session(theirs.site, theirs.incarnation, FrameCodec((send, receive)))


class _Proofs:
    def __init__(self, secret: bytes, client_hello: bytes, server_hello: bytes) -> None:
        key = hashlib.blake2b(secret, digest_size=32, person=b"geokv-secret").digest()
        transcript = len(client_hello).to_bytes(8, "big") + client_hello + server_hello

        def derive(role: bytes) -> bytes:
            return hashlib.blake2b(
                transcript, digest_size=32, key=key, person=b"geokv-" + role
            ).digest()

        self.client = derive(b"client")
        self.server = derive(b"server")
        self.keys = (derive(b"to-server"), derive(b"to-client"))


def _hello(me: Identity) -> bytes:
    hello = Hello(me.nonce(NONCE_BYTES), me.site, me.incarnation, me.layout.as_dict())
    return encode(hello)


async def _expect(channel: Channel, codec: FrameCodec, kind: Kind) -> bytes:
    got, body = await receive_frame(channel, codec)
    if got is Kind.REFUSED:
        refusal = decode(body, Refused)
        cause = refusal.cause if refusal.cause in {"unauthorised", "mismatch"} else "unreachable"
        raise FetchError(cause, f"refused by the peer: {refusal.message}")
    if got is not kind:
        raise RecordError(f"a {got.name} frame came where {kind.name} must")
    return body


def _check_layout(me: Identity, theirs: Hello) -> None:
    differing = me.layout.mismatch(theirs.layout)
    if differing:
        raise FetchError(
            "mismatch",
            f"chunk layouts of {me.site!r} and {theirs.site!r} differ: {'; '.join(differing)}",
            "run both sites with the same model, block and chunk sizes and byte scale",
        )
