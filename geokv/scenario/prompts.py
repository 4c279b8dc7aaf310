"""Seeded prompts as token ids.

Each prompt has its own named stream, so adding a request changes no other request's
text, and a question is the same in every arm of a cell.
"""

from __future__ import annotations

import hashlib

import numpy as np

NUMBER_TOKENS = 8
"""First ids of a question that carry its number; 256**8 numbers with a byte vocabulary."""


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """The random stream called ``name`` of the run seeded with ``seed``."""
    text = "/".join(str(part) for part in (seed, *name))
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def shared_prefix(seed: int, tokens: int, vocab: int) -> list[int]:
    """The prefix every question of a run stands behind: ``tokens`` ids in range(vocab)."""
    return _draw(stream(seed, "prefix"), tokens, vocab)


def working_prefix(seed: int, number: int, tokens: int, vocab: int) -> list[int]:
    """Prefix ``number`` of a working set. Unlike every other in its first ids, as questions."""
    if tokens < NUMBER_TOKENS:
        raise ValueError(f"a prefix of {tokens} tokens cannot be numbered")
    digits = _numbered(seed, "prefix-number", number, vocab)
    return digits + _draw(stream(seed, "prefix", number), tokens - NUMBER_TOKENS, vocab)


def trace_block(seed: int, number: int, tokens: int, vocab: int) -> list[int]:
    """Block ``number`` of a trace: unlike every other in its first ids, as questions.

    Raises:
        ValueError: so short a block cannot carry the number.
    """
    digits = min(NUMBER_TOKENS, tokens)
    if number >= vocab**digits:
        raise ValueError(f"block {number} cannot be numbered in {digits} ids of {vocab}")
    head = _numbered(seed, "trace-number", number, vocab)[:digits]
    return head + _draw(stream(seed, "trace-block", number), tokens - digits, vocab)


def working_order(seed: int, prefixes: int, requests: int, order: str, skew: float) -> list[int]:
    """Which prefix each request of a working set asks for, first to last.

    Args:
        order: ``round-robin``, or ``zipf``: prefix i is drawn with a weight of 1 / (i + 1)^skew.
    """
    if order == "round-robin":
        return [number % prefixes for number in range(requests)]
    weights = np.arange(1, prefixes + 1, dtype=np.float64) ** -skew
    drawn = stream(seed, "working-order").choice(prefixes, size=requests, p=weights / weights.sum())
    return [int(number) for number in drawn]


def question(
    seed: int, cell: int, repeat: int, tokens: int, vocab: int, *, warmup: bool = False
) -> list[int]:
    """Question ``repeat`` of a cell: the same in all arms, unlike every other question.

    The first ``NUMBER_TOKENS`` ids differ from those of every other (cell, repeat,
    warmup) of the seed by construction, not by luck: they are the question's number
    in base ``vocab``, each digit shifted by a seeded constant.

    Raises:
        ValueError: too few tokens or too small a vocabulary to number the questions.
    """
    number = (cell * 2 + warmup) * 2**32 + repeat
    if tokens < NUMBER_TOKENS or number >= vocab**NUMBER_TOKENS or repeat >= 2**32:
        raise ValueError(f"question {cell}/{repeat} cannot be numbered in {tokens} ids of {vocab}")
    ids = _numbered(seed, "question-number", number, vocab)
    rest = stream(seed, "question", cell, repeat, int(warmup))
    return ids + _draw(rest, tokens - NUMBER_TOKENS, vocab)


def _numbered(seed: int, purpose: str, number: int, vocab: int) -> list[int]:
    """``number`` in base ``vocab``, each digit shifted by a constant of the purpose."""
    ids = []
    for shift in _draw(stream(seed, purpose), NUMBER_TOKENS, vocab):
        number, digit = divmod(number, vocab)
        ids.append((digit + shift) % vocab)
    return ids


def _draw(generator: np.random.Generator, count: int, vocab: int) -> list[int]:
    ids: list[int] = generator.integers(vocab, size=count).tolist()
    return ids
