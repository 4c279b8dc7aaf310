"""A non-blocking socket that moves bytes between the kernel and given memory.

asyncio's own streams copy through fresh buffers, and inside the VM each system call
costs about 15 µs and each new page 60-100 µs. So bytes are received straight into
their final place, inside the readiness callback (one ``epoll_wait`` and one ``recv``
per arrival, no task switch), and sent with ``sendmsg`` from where they lie.

Longer than most: with and without TLS, both directions hang on the readiness of one socket.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import sys
import termios
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from geokv.errors import FetchError

_SCRATCH_BYTES = 1024 * 1024
_TCP_NOTSENT_LOWAT = 25  # linux/tcp.h
_MOST_PIECES = 512  # below IOV_MAX (1024)
_scratch: memoryview | None = None

OnBytes = Callable[[memoryview], None]


def scratch() -> memoryview:
    """Reused memory for bytes that are looked at and thrown away (filler)."""
    global _scratch
    if _scratch is None:
        _scratch = memoryview(bytearray(b"\xff") * _SCRATCH_BYTES)
    return _scratch


@dataclass
class Segment:
    """Some bytes that come next.

    Args:
        length: how many.
        into: where to; ``None`` lets them pass through scratch memory.
        on_bytes: sees every piece once, in order, before the scratch is reused.
    """

    length: int
    into: memoryview | None = None
    on_bytes: OnBytes | None = None


class Channel:
    """Owns ``sock``, which must be connected and non-blocking.

    One reader at a time. After ``close`` every call fails with the ``FetchError`` it
    was given.

    Attributes:
        on_end: told once why the connection ended.
        written_bytes, sent_bytes: given to ``write``; taken from there by the kernel.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._error: FetchError | None = None
        self._segments: deque[Segment] = deque()
        self._at = 0
        self._read: asyncio.Future[None] | None = None
        self._watching = False
        self._wake_bytes = 1
        self._out: deque[memoryview] = deque()
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()
        self._drained: asyncio.Future[None] | None = None
        self._writing = False
        self.on_end: Callable[[FetchError], None] | None = None
        self.received_bytes = 0
        self.written_bytes = 0
        self.sent_bytes = 0

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, from whichever side."""
        return self._error is not None

    # -- receiving -------------------------------------------------------------

    async def receive(self, segments: Sequence[Segment]) -> None:
        """Fill every segment completely.

        Cancelling leaves the stream in mid-record: the owner must close it.

        Raises:
            FetchError: the connection ended first.
        """
        self._check()
        self._segments.extend(segment for segment in segments if segment.length)
        if not self._segments:
            return
        self._at = 0
        self._read = self._loop.create_future()
        try:
            self._fill()  # most often it is here already
            if not self._watching and not self._read.done():
                self.watch(self._read_on)
            await self._read
        finally:
            self._read = None
            self._segments.clear()

    async def receive_bytes(self, length: int) -> bytes:
        """``length`` bytes as a new object; for frames, not for payload."""
        data = bytearray(length)
        await self.receive([Segment(length, memoryview(data))])
        return bytes(data)

    def _read_on(self) -> None:
        if self._read is None or self._read.done():
            # Nobody wants more now; a level-triggered reader would spin.
            self.unwatch()
            return
        self._fill()

    def _fill(self) -> None:
        while self._segments:
            segment = self._segments[0]
            want = segment.length - self._at
            if segment.into is None:
                view = scratch()[:want]
            else:
                view = segment.into[self._at : segment.length]
            got = self.receive_some(view)
            if not got:
                return
            self._at += got
            if segment.on_bytes is not None:
                segment.on_bytes(view[:got])
            if self._at == segment.length:
                self._segments.popleft()
                self._at = 0
            elif got < len(view):
                return  # the kernel has no more
        if self._read is not None and not self._read.done():
            self._read.set_result(None)

    def receive_some(self, view: memoryview) -> int:
        """What the kernel has now, at most ``len(view)`` bytes; 0 if it has nothing or
        the connection has ended."""
        try:
            got = self.sock.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(_lost(error))
            return 0
        if not got:
            self.close(FetchError("unreachable", "the peer closed the connection"))
        self.received_bytes += got
        return got

    def wake_at(self, n_bytes: int) -> None:
        """Readiness means so many bytes from now on. More must not be asked than will
        surely come. (With TLS the kernel's bytes are others than ours: no effect.)"""
        if n_bytes != self._wake_bytes and isinstance(self.sock, socket.socket):
            self._wake_bytes = n_bytes
            if not self.closed:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, n_bytes)

    def watch(self, on_readable: Callable[[], None]) -> None:
        """Call ``on_readable`` whenever there is something for ``receive_some``; it must
        take all of it or ``unwatch``. Ends the use of ``receive``."""
        if not self.closed:
            self._watching = True
            self._loop.add_reader(self._fd, on_readable)

    def unwatch(self) -> None:
        """Stop calling; what comes waits in the kernel."""
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._fd)

    # -- sending ---------------------------------------------------------------

    def write(
        self, pieces: Sequence[memoryview | bytes], on_sent: Callable[[], None] | None = None
    ) -> None:
        """Queue ``pieces`` and send what the kernel takes at once.

        Args:
            on_sent: called when the last of them is in the kernel's hands, possibly
                before this returns; never, if the connection ends first.

        The memory must stay unchanged until then or until the channel is closed.

        Raises:
            FetchError: the connection has ended.
        """
        self._check()
        asked = sum(map(len, pieces))
        self.written_bytes += asked
        if not self._out and len(pieces) <= _MOST_PIECES:
            sent = self._hand_over(pieces)
            if sent == asked:
                if on_sent is not None:
                    on_sent()
                return
            self._check()
        else:
            sent = 0
        for piece in pieces:
            if sent < len(piece):
                self._out.append(memoryview(piece)[sent:])
            sent = max(0, sent - len(piece))
        if on_sent is not None:
            self._marks.append((self.written_bytes, on_sent))
        if not self._writing:
            self._send()
        self._check()

    def send_late(self, n_bytes: int) -> None:
        """Let the kernel hold at most so many bytes that are not on the line yet, so that
        the sender decides late what goes next. (With TLS: no effect.)"""
        if isinstance(self.sock, socket.socket) and not self.closed:
            self.sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, n_bytes)

    def unacknowledged(self) -> int:
        """Bytes that the kernel has taken and the peer's has not confirmed."""
        if self.closed:
            return 0
        left = fcntl.ioctl(self._fd, termios.TIOCOUTQ, b"\0" * 4)
        return int.from_bytes(left, sys.byteorder)

    async def drain(self) -> None:
        """Return when everything written is in the kernel's hands.

        Raises:
            FetchError: the connection ended first.
        """
        self._check()
        if not self._out:
            return
        self._drained = self._loop.create_future()
        try:
            await self._drained
        finally:
            self._drained = None

    def _send(self) -> None:
        while self._out:
            pieces = list(islice(self._out, _MOST_PIECES))
            asked = sum(map(len, pieces))
            sent = self._hand_over(pieces)
            if self.closed:
                return
            self._forget(sent)
            if sent < asked:
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._fd, self._send)
                break
        else:
            if self._writing:
                self._writing = False
                self._loop.remove_writer(self._fd)
        while self._marks and self._marks[0][0] <= self.sent_bytes:
            self._marks.popleft()[1]()
        if not self._out and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _hand_over(self, pieces: Sequence[memoryview | bytes]) -> int:
        """How many bytes the kernel took; closes the channel if the connection is lost."""
        try:
            sent = self.sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(_lost(error))
            return 0
        self.sent_bytes += sent
        return sent

    def _forget(self, sent: int) -> None:
        while sent:
            first = self._out[0]
            if sent < len(first):
                self._out[0] = first[sent:]
                return
            sent -= len(first)
            self._out.popleft()

    # -- ending ----------------------------------------------------------------

    def close(self, error: FetchError) -> None:
        """End the connection; waiters fail with ``error``. Safe to call again."""
        if self._error is not None:
            return
        self._error = error
        self.unwatch()
        if self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False
        self._out.clear()
        self._marks.clear()
        self.sock.close()
        for waiter in (self._read, self._drained):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
        if self.on_end is not None:
            self.on_end(error)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def _lost(error: OSError) -> FetchError:
    if isinstance(error, ssl.SSLError):
        return tls_error(error)
    return FetchError("unreachable", f"the connection was lost ({error.strerror or error})")


def tls_refused(error: ssl.SSLError) -> FetchError:
    """What a failed TLS handshake or record is to whoever asked: ``unauthorised``, and why."""
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return FetchError(
        "unauthorised",
        f"TLS: {reason}",
        "deal the keys and certificates of all sites from one secret",
    )


def tls_error(error: ssl.SSLError) -> FetchError:
    """What a TLS error after the handshake means for the connection."""
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return tls_refused(error)
    cause = "corrupt" if "alert" not in reason else "unreachable"
    return FetchError(cause, f"TLS: {reason}")
