"""KV of a sequence that is not computed here but comes from outside.

Blocks are reserved for it, filled by whoever brings it, and count once they are committed: nothing
is half used. What is promised may be computed behind while it comes.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from geokv.engine.arrival import Arrival
from geokv.engine.sequence import Sequence
from geokv.engine.sequence_books import SequenceBooks
from geokv.errors import EngineError


class Filling(SequenceBooks):
    """Reserve, fill, commit; or promise, and have it come layer by layer."""

    def reserve(self, seq: Sequence, tokens: int) -> list[int]:
        """Blocks for the next ``tokens`` tokens, to be filled from outside.

        Args:
            tokens: a multiple of ``block_tokens``; may follow an earlier reservation.

        Raises:
            EngineError: the sequence is not at a block boundary, or no prompt token
                would be left to compute.
            NoRoom: the pool has no more blocks.
        """
        self._ready(seq, "reserve", reserved_ok=True)
        size = self.block_tokens
        start = seq.computed_tokens + seq.reserved_tokens
        if tokens < size or tokens % size or start % size:
            raise EngineError(
                f"{tokens} tokens from {start} cannot be reserved: "
                f"only whole blocks of {size} can be filled from outside"
            )
        if start + tokens >= len(seq.tokens):
            raise EngineError(
                f"{tokens} tokens from {start} leave nothing of {len(seq.tokens)} to compute"
            )
        self._room.cover(seq.blocks, start + tokens)
        seq.reserved_tokens += tokens
        return seq.blocks[start // size : (start + tokens) // size]

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Count the first ``tokens`` reserved tokens as filled and valid.

        Raises:
            EngineError: fewer are reserved, or not whole blocks.
        """
        self._ready(seq, "commit", reserved_ok=True)
        if not 0 <= tokens <= seq.reserved_tokens or tokens % self.block_tokens:
            raise EngineError(
                f"{tokens} tokens cannot be committed: {seq.reserved_tokens} are reserved, "
                f"in blocks of {self.block_tokens}"
            )
        seq.reserved_tokens -= tokens
        self._count_committed(seq, tokens)

    def expect(self, seq: Sequence, layers: Seq[int]) -> Arrival:
        """Promise what is reserved, layer group by layer group: computing may begin behind it.

        Once complete it counts as committed; a failure or :meth:`rollback` takes the
        promise back.

        Args:
            layers: as of :class:`Arrival`.

        Raises:
            EngineError: nothing is reserved, or something is promised already.
        """
        self._ready(seq, "promise", reserved_ok=True)
        if not seq.reserved_tokens or seq.arrival is not None:
            raise EngineError("only what is reserved can be promised, and only once")
        seq.arrival = Arrival(seq.reserved_tokens, layers, lambda: self._progress(seq))
        return seq.arrival

    def retract(self, seq: Sequence) -> Arrival:
        """Take a promise back without saying yet what of it will be there.

        A step that waits for it is given up; the sequence is computed on when
        :meth:`rollback` says how much may be kept.

        Raises:
            EngineError: nothing is promised.
        """
        old = seq.arrival
        if old is None:
            raise EngineError("nothing was promised")
        seq.arrival = Arrival(old.tokens, old.layers, lambda: self._progress(seq))
        old.fail()
        return seq.arrival

    def rollback(self, seq: Sequence, keep: int = 0) -> None:
        """Nothing more will be filled from outside; the blocks are there to be computed.

        A step that waits for what was promised ends with an error.

        Args:
            keep: reserved tokens that are whole and valid all the same.

        Raises:
            EngineError: more than is reserved, or not whole blocks.
        """
        if not 0 <= keep <= seq.reserved_tokens or keep % self.block_tokens:
            raise EngineError(
                f"{keep} of {seq.reserved_tokens} reserved tokens cannot be kept, "
                f"only whole blocks of {self.block_tokens}"
            )
        arrival, seq.arrival = seq.arrival, None
        seq.reserved_tokens = 0
        self._count_committed(seq, keep)
        if arrival is not None:
            arrival.fail()

    def _progress(self, seq: Sequence) -> None:
        arrival = seq.arrival
        if arrival is not None and arrival.complete and not seq.closed:
            seq.arrival = None
            seq.reserved_tokens -= arrival.tokens
            self._count_committed(seq, arrival.tokens)
        if self.on_progress is not None:
            self.on_progress()

    def _count_committed(self, seq: Sequence, tokens: int) -> None:
        seq.computed_tokens += tokens
        seq.committed_tokens += tokens
        self._counts["committed"] += tokens
