"""Frames of an authenticated connection, and the raw payload between them.

Everything happens in the readiness callback: no task wakes up for a frame, and most
frames cost one ``recv``. Payload goes straight to its place, except for the first few
KiB that came in the same ``recv`` as their frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from geokv.cache.substrate.tcp.channel import Channel, Segment, scratch
from geokv.cache.substrate.tcp.wire import HEAD_BYTES, FrameCodec, Kind
from geokv.errors import FetchError, RecordError

_AHEAD_BYTES = 8 * 1024
# Pieces that are still in the processor's cache when their checksum is computed.
_PIECE_BYTES = 256 * 1024
# Fewer wake-ups, not later ones: at 1 MiB a third less time and a fifth less processor
# time than a wake-up per arrival (tests/bench/transfer.py).
_WAKE_BYTES = 256 * 1024
_LEAST_WAKE_BYTES = 64 * 1024
# After so much the event loop gets a turn: others wait too.
_TURN_BYTES = 4 * 1024 * 1024

OnFrame = Callable[[Kind, bytes], "Sequence[Segment]"]


class Frames:
    """Reads ``channel`` from now on.

    Args:
        on_frame: gets every frame, checked; returns the places of the raw payload that
            follows it (empty if none does). ``RecordError`` or ``FetchError`` from it
            ends the connection.
        on_payload: called when the payload of the last frame is in its place; may
            raise the same.
        expects: is a frame to be expected soon? If not, the kernel is not asked for one.
    """

    def __init__(
        self,
        channel: Channel,
        codec: FrameCodec,
        on_frame: OnFrame,
        on_payload: Callable[[], None],
        expects: Callable[[], bool] = lambda: True,
    ) -> None:
        self._channel = channel
        self._codec = codec
        self._on_frame = on_frame
        self._on_payload = on_payload
        self._expects = expects
        self._room = memoryview(bytearray(_AHEAD_BYTES))
        self._start = self._end = 0
        self._head: tuple[Kind, int] | None = None
        self._segments: deque[Segment] = deque()
        self._at = 0
        self._in_payload = False
        self._paused = False
        self._running = False
        self._dry = False

    def start(self) -> None:
        """Begin; what is here already is handed over before this returns."""
        self._channel.watch(self._pull)
        self._pull()

    def pause(self) -> None:
        """Take no further frame; what the peer sends waits in the kernel."""
        self._paused = True
        self._channel.unwatch()

    def resume(self) -> None:
        """Go on after ``pause``."""
        if self._paused and not self._channel.closed:
            self._paused = False
            self.start()

    def _pull(self) -> None:
        if self._running:
            return  # called from within on_frame; the loop below goes on by itself
        self._running = True
        self._dry = False
        limit = self._channel.received_bytes + _TURN_BYTES
        try:
            while not self._channel.closed and self._channel.received_bytes < limit:
                if self._in_payload:
                    if not self._fill():
                        return
                elif self._paused or not self._frame():
                    return
            if not self._channel.closed:
                # Under TLS the rest may be decrypted already: no readiness would tell of it.
                asyncio.get_running_loop().call_soon(self._pull)
        except RecordError as error:
            self._channel.close(FetchError("corrupt", error.message))
        except FetchError as error:
            self._channel.close(error)
        finally:
            self._running = False

    def _frame(self) -> bool:
        """Hand the next frame over; False if the kernel has no more of it."""
        if self._head is None:
            if not self._have(HEAD_BYTES):
                return False
            self._head = self._codec.head(self._room[self._start : self._start + HEAD_BYTES])
        kind, length = self._head
        whole = HEAD_BYTES + length + self._codec.mac_bytes
        if not self._have(whole):
            return False
        frame = self._room[self._start : self._start + whole]
        self._start += whole
        self._head = None
        segments = self._on_frame(kind, self._codec.opened(frame))
        if segments:
            self._segments.extend(segment for segment in segments if segment.length)
            self._at = 0
            self._in_payload = True
        return True

    def _have(self, n_bytes: int) -> bool:
        """Are so many bytes of a frame here, or in the kernel?"""
        while self._end - self._start < n_bytes:
            if self._dry or not self._more(n_bytes):
                return False
        return True

    def _more(self, whole: int) -> bool:
        """Receive towards a frame of ``whole`` bytes."""
        rest = self._room[self._start : self._end]
        if whole > len(self._room) or (len(self._room) > _AHEAD_BYTES >= whole):
            room = memoryview(bytearray(max(whole, _AHEAD_BYTES)))
            room[: len(rest)] = rest
            self._room, self._start, self._end = room, 0, len(rest)
        elif self._start + whole > len(self._room):
            self._room[: len(rest)] = bytes(rest)
            self._start, self._end = 0, len(rest)
        elif not rest:
            self._start = self._end = 0
        got = self._receive(self._room[self._end :])
        self._end += got
        return bool(got)

    def _receive(self, view: memoryview) -> int:
        """As the channel's ``receive_some``, without asking a kernel that just gave less
        than it was asked for."""
        if self._dry:
            return 0
        got = self._channel.receive_some(view)
        self._dry = got < len(view)
        return got

    def _fill(self) -> bool:
        """One step of the payload; False if the kernel has no more."""
        if self._segments:
            segment = self._segments[0]
            want = min(segment.length - self._at, _PIECE_BYTES)
            if segment.into is None:
                view = scratch()[:want]
            else:
                view = segment.into[self._at : self._at + want]
            ahead = min(self._end - self._start, want)
            if ahead:
                view[:ahead] = self._room[self._start : self._start + ahead]
                self._start += ahead
                got = ahead
            else:
                got = self._receive(view)
                if not got:
                    self._wait_for_much()
                    return False
            if segment.on_bytes is not None:
                segment.on_bytes(view[:got])
            self._at += got
            if self._at == segment.length:
                self._segments.popleft()
                self._at = 0
        if not self._segments:
            self._in_payload = False
            self._channel.wake_at(1)
            self._on_payload()
            self._dry = self._dry or not self._expects()
        return True

    def _wait_for_much(self) -> None:
        """Let the kernel wake us for a large piece of the payload and not for each packet."""
        rest = sum(segment.length for segment in self._segments) - self._at
        # Smaller towards the end, where what is left to do is what everybody waits for.
        self._channel.wake_at(min(rest, _WAKE_BYTES, max(rest // 2, _LEAST_WAKE_BYTES)))
