"""TLS 1.3 between two sites: everything that crosses the fibre is encrypted.

OpenSSL works on memory and the channel's socket stays the kernel's: ciphertext is
received in large pieces, so that a record of 16 KiB costs no system call of its own.
What is decrypted lands in its final place; what is sent costs one copy.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from geokv.cache.substrate.tcp.certificates import TlsFiles
from geokv.cache.substrate.tcp.channel import Channel, tls_refused
from geokv.errors import FetchError

_BATCH_BYTES = 256 * 1024
_RECORD_HEAD_BYTES = 5
# RFC 8446 §5.2: 2^14 bytes of content and at most 256 of expansion.
_MAX_RECORD_BYTES = 2**14 + 256
_cipher = memoryview(bytearray(b"\xff") * _BATCH_BYTES)


class TlsSocket:
    """The part of a socket that ``Channel`` uses, with TLS in between.

    As with OpenSSL itself, bytes that ``sendmsg`` did not report as sent must be given
    to it again unchanged: they may be encrypted already.
    """

    def __init__(
        self,
        sock: socket.socket,
        engine: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None:
        self._sock = sock
        self._engine = engine
        self._incoming = incoming
        self._outgoing = outgoing
        self._unsent = memoryview(b"")
        self._encrypted = 0
        self._ended = False

    def fileno(self) -> int:
        """Of the socket below."""
        return self._sock.fileno()

    def getsockopt(self, *what: Any) -> Any:
        """Of the socket below."""
        return self._sock.getsockopt(*what)

    def getsockname(self) -> Any:
        """Of the socket below."""
        return self._sock.getsockname()

    def close(self) -> None:
        """Close the socket below; the other end is not told by TLS."""
        self._sock.close()

    def recv_into(self, view: memoryview) -> int:
        """As a socket's. A short count means that the kernel has no more.

        Raises:
            BlockingIOError: nothing is here.
            OSError: the connection is lost, or a record is damaged (``ssl.SSLError``).
        """
        got = 0
        while got < len(view):
            try:
                read = self._engine.read(len(view) - got, view[got:])
            except ssl.SSLWantReadError:
                if not self._more(bool(got)):
                    break
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
            got += int(read)
        return got

    def _more(self, enough: bool) -> bool:
        """Take ciphertext from the kernel; False if there is none."""
        try:
            size = 0 if self._ended else self._sock.recv_into(_cipher)
        except (BlockingIOError, InterruptedError):
            if enough:
                return False
            raise
        if not size:
            self._ended = True
            return False
        self._incoming.write(_cipher[:size])
        return True

    def sendmsg(self, pieces: Sequence[memoryview]) -> int:
        """As a socket's: how many bytes of ``pieces`` the kernel has taken, encrypted.

        Raises:
            BlockingIOError: none.
            OSError: the connection is lost.
        """
        if not self._unsent:
            self._encrypted = self._encrypt(pieces)
            self._unsent = memoryview(self._outgoing.read())
        while self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        return self._encrypted

    def _encrypt(self, pieces: Sequence[memoryview]) -> int:
        taken = 0
        for piece in pieces:
            rest = piece[: _BATCH_BYTES - taken]
            while rest:
                written = self._engine.write(rest)
                rest = rest[written:]
                taken += written
            if taken >= _BATCH_BYTES:
                break
        return taken


def make_context(files: TlsFiles, *, server: bool) -> ssl.SSLContext:
    """TLS 1.3 and nothing older; both ends show a certificate of the deployment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # ``peer_site`` does, by alias
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=files.authority.decode())
    if server:
        context.num_tickets = 0
    # ssl loads a chain from files only, and a private key is not for a disk.
    secret = os.memfd_create("geokv-tls", os.MFD_CLOEXEC)
    try:
        os.write(secret, files.chain)
        context.load_cert_chain(f"/proc/self/fd/{secret}")
    finally:
        os.close(secret)
    return context


async def start_tls(channel: Channel, context: ssl.SSLContext, files: TlsFiles) -> str:
    """Encrypt ``channel`` from here on. The caller sets the deadline.

    Returns:
        The site that the other end's certificate names.

    Raises:
        FetchError: ``unauthorised`` (no certificate of this deployment),
            ``unreachable`` (the connection ended).
    """
    server = context.protocol is ssl.PROTOCOL_TLS_SERVER
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = context.wrap_bio(incoming, outgoing, server_side=server)
    while True:
        try:
            engine.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            _flush(channel, outgoing)  # tells the other end why
            raise tls_refused(error) from None
        else:
            break
        _flush(channel, outgoing)
        incoming.write(await _record(channel))
    _flush(channel, outgoing)
    await channel.drain()
    channel.sock = TlsSocket(channel.sock, engine, incoming, outgoing)  # type: ignore[assignment]
    return _peer_site(engine, files)


async def _record(channel: Channel) -> bytes:
    head = await channel.receive_bytes(_RECORD_HEAD_BYTES)
    length = int.from_bytes(head[3:], "big")
    if length > _MAX_RECORD_BYTES:
        raise FetchError("unauthorised", f"no TLS record: {length} bytes announced")
    return head + await channel.receive_bytes(length)


def _flush(channel: Channel, outgoing: ssl.MemoryBIO) -> None:
    if outgoing.pending and not channel.closed:
        channel.write([outgoing.read()])


def _peer_site(engine: ssl.SSLObject, files: TlsFiles) -> str:
    certificate: dict[str, Any] = engine.getpeercert() or {}
    for kind, alias in certificate.get("subjectAltName", ()):
        if kind == "DNS" and alias in files.aliases:
            return files.aliases[alias]
    raise FetchError(
        "unauthorised", "the certificate names no site of this deployment", "deal the keys again"
    )
