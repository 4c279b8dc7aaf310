"""Thousands of operations in any order against a brute-force oracle.

Content is synthetic: every token's KV tells what it is and what came before it, so a block
that is shared wrongly, written while shared or handed out twice changes an answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from engine_steps import Inline, path_tokens

from geokv.engine import Engine, Sequence, Slice
from geokv.engine.prefix import PrefixNode
from geokv.engine.synthetic import SyntheticModel
from geokv.engine.tiny import TINY
from geokv.errors import NoRoom

BLOCKS, SIZE = 60, 4


@dataclass
class Oracle:
    """What must be cached, as a plain set of prefixes, and what must be answered."""

    model: SyntheticModel
    cached: dict[bytes, set[tuple[int, ...]]] = field(default_factory=dict)
    known: dict[tuple[int, ...], int] = field(default_factory=dict)

    def keep(self, seq: Sequence) -> None:
        """Its whole valid blocks are cached now."""
        prefixes = self.cached.setdefault(seq.root, set())
        for end in range(SIZE, seq.computed_tokens + 1, SIZE):
            prefixes.add(tuple(seq.tokens[:end]))

    def evicted(self, node: PrefixNode, cause: str) -> None:
        """A prefix has gone; nothing longer may be there."""
        gone = tuple(path_tokens(node))
        prefixes = self.cached[node.root]
        prefixes.remove(gone)
        assert not any(p[: len(gone)] == gone for p in prefixes), "a parent went before its child"

    def longest(self, root: bytes, tokens: list[int]) -> int:
        """Tokens of the longest cached prefix that leaves one to compute."""
        lengths = [
            len(p)
            for p in self.cached.get(root, ())
            if len(p) < len(tokens) and tuple(tokens[: len(p)]) == p
        ]
        return max(lengths, default=0)

    async def next_token(self, tokens: list[int]) -> int:
        """What a fresh engine says after ``tokens``."""
        key = tuple(tokens)
        if key not in self.known:
            engine = Engine(self.model, 64, Inline(), SIZE)
            seq = engine.open(tokens, b"cold")
            self.known[key] = int((await engine.step([Slice(seq, len(tokens))]))[0].argmax())
        return self.known[key]


@pytest.mark.parametrize("seed", range(3))
async def test_any_order_of_operations_agrees_with_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    model = SyntheticModel(TINY, seed=1)
    oracle = Oracle(SyntheticModel(TINY, seed=1))
    engine = Engine(model, BLOCKS, Inline(), SIZE, on_evict=oracle.evicted)
    alphabet, roots = [1, 2], [b"tenant-1", b"tenant-2"]
    live: list[Sequence] = []
    parked: list[Sequence] = []
    done = dict.fromkeys(("open", "step", "fork", "park", "resume", "close", "drop", "full"), 0)
    weights = {"open": 6, "step": 20, "fork": 2, "park": 1, "resume": 1, "close": 5, "flush": 0.5}

    for _ in range(2500):
        what = rng.choices(list(weights), list(weights.values()))[0]
        try:
            if what == "open":
                tokens = rng.choices(alphabet, k=rng.randrange(1, 26))
                root, reuse = rng.choice(roots), rng.random() < 0.8
                expected = oracle.longest(root, tokens)
                assert engine.lookup(tokens, root) == expected
                seq = engine.open(tokens, root, reuse)
                assert seq.computed_tokens == (expected if reuse else 0)
                live.append(seq)
                done["open"] += 1
            elif what == "step" and live:
                batch = rng.sample(live, min(len(live), rng.randrange(1, 5)))
                parts = [
                    Slice(seq, rng.randrange(1, seq.remaining_tokens + 1))
                    for seq in batch
                    if seq.remaining_tokens
                ]
                for part in parts:
                    engine.make_room(part.seq, part.start + part.tokens)
                last = [part.seq for part in parts if part.is_last]
                logits = await engine.step(parts) if parts else []
                for seq, row in zip(last, logits, strict=True):
                    token = int(row.argmax())
                    assert token == await oracle.next_token(seq.tokens)
                    if rng.random() < 0.5:
                        engine.publish(seq)
                        oracle.keep(seq)
                    if len(seq.tokens) < 40:
                        # A twin may go another way: both must be right.
                        engine.append(seq, rng.choice([token, *alphabet]))
                done["step"] += bool(parts)
            elif what == "fork" and live:
                live.append(engine.fork(rng.choice(live)))
                done["fork"] += 1
            elif what == "park" and live:
                seq = live.pop(rng.randrange(len(live)))
                oracle.keep(seq)
                engine.preempt(seq)
                parked.append(seq)
                done["park"] += 1
            elif what == "resume" and parked:
                seq = parked.pop(rng.randrange(len(parked)))
                expected = oracle.longest(seq.root, seq.tokens)
                engine.resume(seq)
                assert seq.computed_tokens == expected
                live.append(seq)
                done["resume"] += 1
            elif what == "close" and live:
                seq = live.pop(rng.randrange(len(live)))
                if keep := rng.random() < 0.7:
                    oracle.keep(seq)
                engine.close(seq, keep)
                done["close"] += 1
            elif what == "flush":
                done["drop"] += engine.flush(rng.choice([None, *roots])) > 0
        except NoRoom:
            # The pool is too small on purpose; somebody has to go.
            done["full"] += 1
            seq = live.pop(rng.randrange(len(live)))
            oracle.keep(seq)
            engine.close(seq)
        engine.check_integrity()
        size = sum(map(len, oracle.cached.values()))
        assert engine.tree.size == size, "the tree holds what the oracle does not, or less"

    assert model.damaged == 0
    assert min(done.values()) > 5, f"an operation hardly happened: {done}"
    for seq in (*live, *parked):
        oracle.keep(seq)
        engine.close(seq)
    engine.flush()
    engine.check_integrity()
    assert engine.stats().blocks_free == BLOCKS
