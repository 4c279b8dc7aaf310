"""New tokens of sequences, and where a batch of them lies in the pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from geokv.engine.pool import BlockPool
from geokv.errors import EngineError


@dataclass(frozen=True)
class Span:
    """New tokens of one sequence.

    Args:
        tokens: ids to compute, at positions ``start … start + len(tokens) - 1``.
        start: tokens before them, whose KV the blocks hold already.
        table: the sequence's blocks in order; covers at least ``start + len(tokens)``.
        logits: whether those after the last token are wanted; a chunk of a prompt that
            is not its last needs none.
    """

    tokens: Sequence[int]
    start: int
    table: Sequence[int]
    logits: bool = True

    @property
    def stop(self) -> int:
        """Tokens of the sequence once this is computed."""
        return self.start + len(self.tokens)

    def check(self, block_tokens: int, vocab_size: int) -> None:
        """Refuse what cannot be computed.

        Raises:
            EngineError: no tokens, more than the table has room for, or an unknown one.
        """
        if not self.tokens or self.start < 0 or self.stop > len(self.table) * block_tokens:
            raise EngineError(
                f"span of {len(self.tokens)} tokens from {self.start} does not fit "
                f"{len(self.table)} blocks of {block_tokens}"
            )
        if not 0 <= min(self.tokens) <= max(self.tokens) < vocab_size:
            raise EngineError(
                f"token ids must be in 0 … {vocab_size - 1}, "
                f"got {min(self.tokens)} … {max(self.tokens)}"
            )


@dataclass(frozen=True)
class Context:
    """The first ``tokens`` tokens of ``blocks``, to be attended to.

    ``first`` is the first block where they lie one after another in the pool, so that
    they are read in place; None where they have to be gathered.
    """

    blocks: torch.Tensor
    tokens: int
    first: int | None

    @classmethod
    def of(cls, table: Sequence[int], tokens: int, pool: BlockPool) -> Context:
        """Of a table that covers ``tokens``."""
        used = list(table[: -(-tokens // pool.block_tokens)])
        consecutive = used == list(range(used[0], used[0] + len(used)))
        blocks = torch.tensor(used, dtype=torch.int64, device=pool.device)
        return cls(blocks, tokens, used[0] if consecutive else None)


@dataclass(frozen=True)
class Work:
    """One attention: the queries of ``rows`` over ``context``, the first at ``start``."""

    rows: slice
    start: int
    context: Context


@dataclass(frozen=True)
class SharedWork:
    """Single queries of several sequences that begin with the same blocks.

    The blocks they share are read once for all (``prefix``), the rest of each one's
    tokens is in ``own``, in the order of ``rows``.
    """

    rows: torch.Tensor
    prefix: Context
    own: tuple[Context, ...]


class Batch:
    """Spans laid out as rows.

    Attributes:
        ids, positions, slots: int64 ``[rows]``: token, place in its sequence, place in the
            pool (block × block_tokens + offset).
        wanted: rows whose logits are wanted, in order.
        works, shared: the attentions that together cover all rows.

    Raises:
        EngineError: no spans, an empty one, one whose table is too short, an unknown token.
    """

    def __init__(
        self, spans: Sequence[Span], pool: BlockPool, vocab_size: int, share_from: int | None
    ) -> None:
        """So many tokens in common make single queries share an attention; None: never."""
        if not spans:
            raise EngineError("an empty batch cannot be computed")
        for span in spans:
            span.check(pool.block_tokens, vocab_size)
        self._pool = pool
        starts, row = [], 0
        for span in spans:
            starts.append(row)
            row += len(span.tokens)
        self.rows = row
        self.wanted = [
            start + len(span.tokens) - 1
            for span, start in zip(spans, starts, strict=True)
            if span.logits
        ]
        self.ids = self._tensor([token for span in spans for token in span.tokens])
        self.positions = self._tensor([p for span in spans for p in range(span.start, span.stop)])
        self.slots = self._tensor([slot for span in spans for slot in self._slots(span)])
        groups = _sharing(spans, pool.block_tokens, share_from) if share_from is not None else []
        together = {index for members, _ in groups for index in members}
        self.works = [
            Work(slice(at, at + len(s.tokens)), s.start, Context.of(s.table, s.stop, pool))
            for index, (s, at) in enumerate(zip(spans, starts, strict=True))
            if index not in together
        ]
        self.shared = [
            SharedWork(
                self._tensor([starts[index] for index in members]),
                Context.of(spans[members[0]].table, blocks * pool.block_tokens, pool),
                tuple(self._rest(spans[index], blocks) for index in members),
            )
            for members, blocks in groups
        ]

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._pool.device)

    def _slots(self, span: Span) -> list[int]:
        size, table = self._pool.block_tokens, span.table
        return [table[p // size] * size + p % size for p in range(span.start, span.stop)]

    def _rest(self, span: Span, blocks: int) -> Context:
        return Context.of(
            span.table[blocks:], span.stop - blocks * self._pool.block_tokens, self._pool
        )


def _sharing(spans: Sequence[Span], size: int, share_from: int) -> list[tuple[list[int], int]]:
    """Groups of decodes whose tables begin alike: their indices, and how many blocks.

    Decodes that begin with the same block are one group, up to where the first of them
    leaves the others: one level of the tree of prefixes, as in cascade inference.
    """
    heads: dict[int, list[int]] = defaultdict(list)
    for index, span in enumerate(spans):
        if len(span.tokens) == 1 and span.start >= share_from:
            heads[span.table[0]].append(index)
    groups = []
    for members in heads.values():
        # At least the new token remains to each, so that no part is empty.
        tables = [spans[i].table[: spans[i].start // size] for i in members]
        blocks = _common(tables) if len(members) > 1 else 0
        if blocks and blocks * size >= share_from:
            groups.append((members, blocks))
    return groups


def _common(tables: Sequence[Sequence[int]]) -> int:
    # The least and the greatest differ first where any two do.
    least, greatest = (list(edge(map(list, tables))) for edge in (min, max))
    pairs = zip(least, greatest, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(least), len(greatest)))
