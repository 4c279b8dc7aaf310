"""Answers whose end never comes: all but the last byte is sent, and then nothing more.

On the connection nothing can follow, so whoever waits gives it up at his deadline; this
site lets the chunk go at the latest when its lease has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geokv.cache.substrate.tcp import wire
from geokv.cache.substrate.tcp.answers import ChunkAnswers
from geokv.clock import now_ns

Finish = Callable[[str], None] | None


class LostCompletions:
    """Of every so many chunks that this process sends over tcp one is not completed.

    Attributes:
        lost: how many were not, since this last began.
        first_ns: when the first of them was begun; 0 before.
    """

    def __init__(self, site: str) -> None:
        self.lost = 0
        self.first_ns = 0
        self._site = site
        self._one_in = 0
        self._count = 0
        self._chunk = ChunkAnswers._chunk
        meddler = self

        def chunk(self: ChunkAnswers, get: wire.Get) -> None:
            meddler._answer(self, get)

        ChunkAnswers._chunk = chunk  # type: ignore[method-assign]

    def set(self, one_in: int) -> None:
        """From now on; 0 ends it, and what was counted stays."""
        if one_in:
            self.lost = self.first_ns = 0
        self._one_in = one_in
        self._count = 0

    def _answer(self, talk: ChunkAnswers, get: wire.Get) -> None:
        if not self._one_in or talk._desk.site != self._site:
            self._chunk(talk, get)
            return
        turns = talk._turns
        send = turns.send

        def withheld(
            pieces: Sequence[memoryview | bytes],
            limit_s: float | None = None,
            late: str = "timeout",
            finish: Finish = None,
        ) -> None:
            if finish is None or not self._is_next():
                send(pieces, limit_s, late, finish)
                return
            assert limit_s is not None, "a chunk has a lease"
            turns.hold(limit_s, late, finish)
            talk._channel.write([*pieces[:-1], memoryview(pieces[-1])[:-1]])

        turns.send = withheld  # type: ignore[method-assign]
        try:
            self._chunk(talk, get)
        finally:
            del turns.send

    def _is_next(self) -> bool:
        """Only answers that are chunks have an end that can be lost."""
        self._count += 1
        if self._count % self._one_in:
            return False
        self.lost += 1
        self.first_ns = self.first_ns or now_ns()
        return True
