"""Content without a model: KV and tokens derived from the prompt, for runs at scale.

A token's KV is 32 bytes. Its key is a link of a BLAKE2b-128 chain over (key before, token),
rooted in the fingerprint; its value holds position and token in clear and a seal over both
keys. The chain goes on from what the pool *really* holds, and the next token is drawn from
a digest over *every* byte of the context in the pool. So a damaged, foreign, missing or
misplaced block changes the answer, as it would with a model, and equal answers mean equal
KV. No weights, no matrix, no attention: a step of 2048 tokens takes less than a ms.

A model cannot say that its KV is wrong; this can. Each context is checked before it is
used: every value sits at its own position, belongs to its key, and follows the key that is
really before it. One that fails is counted in ``damaged``, described in ``last_damage``,
and has logits of NaN, which the sampler refuses: that request fails and no other.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from geokv.engine.config import ModelConfig
from geokv.engine.pool import BlockPool
from geokv.engine.span import Span
from geokv.errors import EngineError

Words = NDArray[np.uint64]

KEY_BYTES = 16
_REMEMBERED_CONTEXTS = 4096
#: Answers are drawn from printable ASCII where the vocabulary has it.
_FIRST_CHARACTER, _CHARACTERS = 32, 95
_PEAK = 12.0
"""Logit of the token drawn; the others lie in 0 … 4."""


def synthetic_config(
    like: ModelConfig, layers: int = 1, max_tokens: int | None = None
) -> ModelConfig:
    """The shape of synthetic content with the name and vocabulary of ``like``.

    Args:
        max_tokens: of one sequence; as many as ``like`` takes when None.
    """
    return replace(
        like,
        layers=layers,
        heads=1,
        kv_heads=1,
        head_dim=KEY_BYTES,
        max_tokens=max_tokens or like.max_tokens,
    )


class SyntheticModel:
    """Stands where :class:`~geokv.engine.model.LlamaModel` stands.

    Scratch memory is reused between calls, so one instance computes one batch at a time.

    Args:
        like: whose name, vocabulary and length it has.
        seed: two models share KV only when their seeds agree.
        layers: how many times each entry is stored, each time masked differently; as
            many as a chunk has layer groups.
        max_tokens: longest context; that of ``like`` when None.

    Attributes:
        damaged: spans whose context was not what it must be.
        last_damage: where the last of them was; None while there was none.
    """

    dtype = torch.int8
    """Bytes: nothing on the way may take them for numbers and round them."""
    device = torch.device("cpu")

    def __init__(
        self,
        like: ModelConfig,
        seed: int = 0,
        layers: int = 1,
        max_tokens: int | None = None,
    ) -> None:
        self.config = synthetic_config(like, layers, max_tokens)
        self.fingerprint = hashlib.blake2b(
            f"synthetic/{seed}/{layers}/{like.vocab_size}".encode(), digest_size=16
        ).hexdigest()
        self.damaged = 0
        self.last_damage: str | None = None
        self._root = bytes.fromhex(self.fingerprint)
        constants = np.random.Generator(np.random.PCG64(0x6B76))
        #: Odd, so that no change of a single word leaves the sum of products as it was.
        self._weights = _odd(constants, self.config.max_tokens)
        self._seal_factors = [np.uint64(factor) for factor in _odd(constants, 6)]
        self._masks = constants.integers(0, 2**64, (layers, 1, 1, 2), np.uint64)
        self._masks[0] = 0
        self._noise = constants.uniform(0, 4, 2 * like.vocab_size).astype(np.float32)
        self._token_bytes = [token.to_bytes(4, "little") for token in range(like.vocab_size)]
        self._tokens_base = _FIRST_CHARACTER if like.vocab_size > 127 else 0
        self._tokens_count = min(like.vocab_size, _CHARACTERS)
        #: Sums of contexts that were checked, by length and last key.
        self._checked: OrderedDict[tuple[int, bytes], bytes] = OrderedDict()
        self._context = self._room_for(0)

    def new_pool(self, blocks: int, block_tokens: int = 16) -> BlockPool:
        """A pool of this content's shape."""
        shape = self.config
        return BlockPool(
            shape.layers, blocks, block_tokens, shape.kv_heads, shape.head_dim, self.dtype
        )

    def forward(self, spans: Sequence[Span], pool: BlockPool) -> torch.Tensor:
        """Derive ``spans``, store their KV in the pool.

        Returns:
            float32 ``[rows, vocab]`` with one clear maximum per row, or NaN where the
            span's context is damaged.

        Raises:
            EngineError: a span that does not fit its blocks, an unknown token, or a pool
                that is not of this content's shape.
        """
        if not spans:
            raise EngineError("an empty batch cannot be computed")
        held = self._words(pool)
        tables = [self._write(span, held) for span in spans]
        wanted = [(span, table) for span, table in zip(spans, tables, strict=True) if span.logits]
        logits = np.empty((len(wanted), self.config.vocab_size), np.float32)
        for row, (span, table) in zip(logits, wanted, strict=True):
            digest = self._read(span, table, held)
            if digest is None:
                row[:] = np.nan
            else:
                self._draw(digest, row)
        return torch.from_numpy(logits)

    def walk(self, spans: Sequence[Span], pool: BlockPool) -> Generator[int, None, torch.Tensor]:
        """:meth:`forward`, once every layer has been announced: it reads them all together."""
        yield from range(self.config.layers)
        return self.forward(spans, pool)

    # -- writing ---------------------------------------------------------------

    def _write(self, span: Span, held: Words) -> NDArray[np.int64]:
        """Store the new tokens' entries; the blocks that hold them and what is before."""
        start, stop, size = span.start, span.stop, held.shape[3]
        span.check(size, self.config.vocab_size)
        if stop > self.config.max_tokens:
            raise EngineError(f"{stop} tokens are more than the model's {self.config.max_tokens}")
        table = np.array(span.table[: -(-stop // size)], np.int64)
        key = self._root
        if start:
            block, offset = divmod(start - 1, size)
            key = held[0, 0, table[block], offset].tobytes()
        links = bytearray(key)
        blake2b, token_bytes = hashlib.blake2b, self._token_bytes
        for token in span.tokens:
            key = blake2b(key + token_bytes[token], digest_size=KEY_BYTES).digest()
            links += key
        keys = np.frombuffer(links, np.uint64).reshape(-1, 2)
        entries = np.empty((2, len(span.tokens), 2), np.uint64)
        entries[0] = keys[1:]
        positions = np.arange(start, stop, dtype=np.uint64)
        entries[1, :, 0] = positions << np.uint64(32) | np.asarray(span.tokens, np.uint64)
        entries[1, :, 1] = self._seal(keys, entries[1, :, 0])
        blocks, offsets = np.divmod(np.arange(start, stop), size)
        held[:, :, table[blocks], offsets] = entries ^ self._masks
        return table

    def _words(self, pool: BlockPool) -> Words:
        """The pool's memory as ``[layers, 2, blocks, block_tokens, 2 words]``."""
        shape = self.config
        asked = (shape.layers, shape.kv_heads, shape.head_dim, self.dtype)
        found = (pool.layers, pool.kv_heads, pool.head_dim, pool.dtype)
        if asked != found:
            raise EngineError(
                f"the pool holds {found}, synthetic content is {asked} "
                "(layers, KV heads, head width, type)",
                "make the pool with the model's new_pool",
            )
        return pool.tensor.numpy().view(np.uint64)[:, :, :, :, 0]

    # -- reading ---------------------------------------------------------------

    def _read(self, span: Span, table: NDArray[np.int64], held: Words) -> bytes | None:
        """A digest over the whole context as the pool holds it; None when it is damaged."""
        start, stop = span.start, span.stop
        context = self._gather(table, held)
        before = self._sum(context, 0, start)
        known = self._checked.get(_name(context, start)) == before.tobytes()
        bad = self._first_bad(context, start if known else 0, stop)
        if bad is not None:
            self.damaged += 1
            self.last_damage = (
                f"block {table[bad // held.shape[3]]} of the pool holds at position {bad} "
                "what does not belong there"
            )
            return None
        whole = (before + self._sum(context, start, stop)).tobytes()
        self._checked[_name(context, stop)] = whole
        if len(self._checked) > _REMEMBERED_CONTEXTS:
            self._checked.popitem(last=False)
        return hashlib.blake2b(whole, digest_size=16, key=self._root).digest()

    def _gather(self, table: NDArray[np.int64], held: Words) -> Words:
        """``[layers, 2, 1 + tokens, 2]``, unmasked; row 0 holds the root."""
        layers, _, _, size, _ = held.shape
        tokens = len(table) * size
        if self._context.shape[2] <= tokens:
            self._context = self._room_for(2 * tokens)
        for layer in range(layers):
            for half in range(2):
                rows = self._context[layer, half, 1 : 1 + tokens]
                # "clip" lets numpy write into ``rows`` at once; the blocks are the pool's.
                held[layer, half].take(table, 0, rows.reshape(len(table), size, 2), "clip")
                if layer:
                    rows ^= self._masks[layer, 0]
        return self._context[:, :, : 1 + tokens]

    def _sum(self, context: Words, start: int, stop: int) -> Words:
        """Sum over entries, each word times its position's weight: ``[layers, 2, 2]``."""
        return self._weights[start:stop] @ context[:, :, 1 + start : 1 + stop]

    def _first_bad(self, context: Words, start: int, stop: int) -> int | None:
        """The first position whose entry is not what belongs there."""
        keys = context[0, 0, start : 1 + stop]
        values = context[0, 1, 1 + start : 1 + stop]
        good = values[:, 0] >> np.uint64(32) == np.arange(start, stop, dtype=np.uint64)
        good &= values[:, 1] == self._seal(keys, values[:, 0])
        for copy in context[1:, :, 1 + start : 1 + stop]:
            good &= (copy == context[0, :, 1 + start : 1 + stop]).all((0, 2))
        return None if good.all() else start + int(good.argmin())

    def _seal(self, keys: Words, clear: Words) -> Words:
        """Over an entry's key, the one before it and its position and token: ``[n]``.

        Args:
            keys: ``[1 + n, 2]``, from the one before the first.
            clear: ``[n]``.
        """
        a, b, c, d, e, f = self._seal_factors
        mixed = keys[1:, 0] * a
        mixed += keys[1:, 1] * b
        mixed += keys[:-1, 0] * c
        mixed += keys[:-1, 1] * d
        mixed += clear * e
        mixed ^= mixed >> np.uint64(32)
        mixed *= f
        return mixed

    def _room_for(self, tokens: int) -> Words:
        room = np.zeros((self.config.layers, 2, 1 + tokens, 2), np.uint64)
        room[:, 0, 0] = np.frombuffer(self._root, np.uint64)
        return room

    def _draw(self, digest: bytes, row: NDArray[np.float32]) -> None:
        """Logits ``[vocab]`` of a context's digest."""
        vocab = self.config.vocab_size
        shift = int.from_bytes(digest[8:], "little") % vocab
        row[:] = self._noise[shift : shift + vocab]
        token = int.from_bytes(digest[:8], "little") % self._tokens_count
        row[self._tokens_base + token] = _PEAK


def _odd(random: np.random.Generator, count: int) -> Words:
    return random.integers(0, 2**64, count, np.uint64) | np.uint64(1)


def _name(context: Words, tokens: int) -> tuple[int, bytes]:
    """Of the context's first ``tokens`` tokens."""
    return tokens, context[0, 0, tokens].tobytes()
