"""Any mix of spans computes what each sequence alone would."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.engine import BlockPool, LlamaModel, Span
from geokv.engine import model as model_module
from geokv.engine.span import Batch
from geokv.engine.tiny import random_model
from geokv.errors import EngineError

BLOCK = 4
VOCAB = 64
#: Relative to the greatest logit.
EXACT = 1e-5
#: Of bfloat16 logits whose spread is about 4. A choice may differ from the reference's
#: only where its two best logits are closer than twice that.
BF16_LOGITS = 0.5


@pytest.fixture(scope="module", autouse=True)
def _share_short_prefixes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "SHARE_FROM_TOKENS", 2 * BLOCK)
        yield


@dataclass
class Text:
    """A sequence on its way through the model, and the logits it got by length."""

    tokens: list[int]
    table: list[int]
    done: int = 0
    logits: dict[int, torch.Tensor] = field(default_factory=dict)


def texts_of(model: LlamaModel, pool: BlockPool, shape: random.Random) -> list[Text]:
    """Sequences of random length in scattered blocks; some start as forks of another."""
    free = list(range(pool.blocks))
    shape.shuffle(free)
    if shape.random() < 0.3:
        free.sort(reverse=True)

    def take(tokens: int) -> list[int]:
        return [free.pop() for _ in range(-(-tokens // BLOCK))]

    texts: list[Text] = []
    for _ in range(shape.randint(1, 5)):
        tokens = shape.choices(range(VOCAB), k=shape.randint(1, 40))
        texts.append(Text(tokens, take(len(tokens))))
    origin = max(texts, key=lambda text: len(text.tokens))
    shared = (len(origin.tokens) - 1) // BLOCK
    if shared and shape.random() < 0.7:
        stem = origin.tokens[: shared * BLOCK]
        model.forward([Span(stem, 0, origin.table, logits=False)], pool)
        origin.done = len(stem)
        for _ in range(shape.randint(1, 3)):
            tail = shape.choices(range(VOCAB), k=shape.randint(1, 9))
            table = origin.table[:shared] + take(len(tail))
            texts.append(Text(stem + tail, table, done=len(stem)))
    return texts


def run(model: LlamaModel, pool: BlockPool, texts: list[Text], shape: random.Random) -> None:
    """Random batches of random chunks, many of a single token, until all is computed."""
    while open_texts := [text for text in texts if text.done < len(text.tokens)]:
        chosen = shape.sample(open_texts, shape.randint(1, len(open_texts)))
        spans = []
        for text in chosen:
            size = shape.choice([1, 1, shape.randint(1, 40)])
            part = text.tokens[text.done : text.done + size]
            spans.append(Span(part, text.done, text.table, shape.random() < 0.8))
        logits = iter(model.forward(spans, pool))
        for text, span in zip(chosen, spans, strict=True):
            text.done = span.stop
            if span.logits:
                text.logits[text.done] = next(logits)
        assert next(logits, None) is None


def alone(model: LlamaModel, tokens: list[int]) -> torch.Tensor:
    pool = model.new_pool(16, BLOCK)
    return model.forward([Span(tokens, 0, list(range(16)))], pool)[0]


def mixed_and_alone(
    reference: LlamaModel, seed: int, masked: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """All logits of a random mix, each with those of its text computed alone."""
    shape = random.Random(seed)
    model = LlamaModel(reference.config, reference.weights, reference.fingerprint, masked)
    pool = model.new_pool(160, BLOCK)
    texts = texts_of(model, pool, shape)
    run(model, pool, texts, shape)
    for text in texts:
        for length, logits in text.logits.items():
            yield logits, alone(reference, text.tokens[:length])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), masked=st.booleans())
def test_any_mix_equals_one_at_a_time(small: LlamaModel, seed: int, masked: bool) -> None:
    for logits, wanted in mixed_and_alone(small, seed, masked):
        assert (logits - wanted).abs().max() <= EXACT * wanted.abs().max()
        assert logits.argmax() == wanted.argmax()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), masked=st.booleans())
def test_in_bfloat16_only_near_ties_may_turn(small: LlamaModel, seed: int, masked: bool) -> None:
    half = random_model(small.config, seed=3, dtype=torch.bfloat16)
    for logits, wanted in mixed_and_alone(half, seed, masked):
        assert (logits - wanted).abs().max() < BF16_LOGITS
        best, second = wanted.topk(2).values.tolist()
        assert logits.argmax() == wanted.argmax() or best - second < 2 * BF16_LOGITS


def test_decodes_that_begin_alike_share_one_attention(small: LlamaModel) -> None:
    pool = small.new_pool(40, BLOCK)
    stem = [7, 3, 9, 8]
    tables = [[*stem, 20, 21], [*stem, 22, 23], [7, 3, 9, 30, 31], [4, 5, 6, 11]]
    starts = [20, 17, 16, 13]
    spans = [Span([1], start, table) for start, table in zip(starts, tables, strict=True)]
    chunk = Span([1, 2], 16, [*stem, 32, 33])
    batch = Batch([*spans, chunk], pool, VOCAB, share_from=8)
    (shared,) = batch.shared
    assert shared.rows.tolist() == [0, 1, 2]
    assert shared.prefix.blocks.tolist() == [7, 3, 9]
    assert [own.tokens for own in shared.own] == [9, 6, 5]
    assert [own.blocks.tolist() for own in shared.own] == [[8, 20, 21], [8, 22], [30, 31]]
    assert [work.rows for work in batch.works] == [slice(3, 4), slice(4, 6)]
    assert batch.slots.tolist() == [21 * 4, 22 * 4 + 1, 31 * 4, 11 * 4 + 1, 32 * 4, 32 * 4 + 1]
    # Three blocks are twelve tokens; nobody shares sixteen, and a device that cannot never does.
    assert not Batch(spans, pool, VOCAB, share_from=16).shared
    assert not Batch(spans, pool, VOCAB, share_from=None).shared


def test_the_block_of_the_new_token_is_never_shared(small: LlamaModel) -> None:
    pool = small.new_pool(8, BLOCK)
    for start, rest in ((16, 1), (19, 4)):
        spans = [Span([1], start, [0, 1, 2, 3, 4])] * 2
        (shared,) = Batch(spans, pool, VOCAB, share_from=8).shared
        assert shared.prefix.tokens == 16
        assert [own.tokens for own in shared.own] == [rest, rest]


def test_consecutive_blocks_are_read_in_place(small: LlamaModel) -> None:
    pool = small.new_pool(8, BLOCK)

    def first(*table: int) -> int | None:
        return Batch([Span([1], 9, table)], pool, VOCAB, None).works[0].context.first

    assert first(3, 4, 5) == 3
    # Blocks beyond the context do not matter, order does.
    assert first(3, 4, 5, 1) == 3
    assert first(5, 4, 3) is None
    assert first(3, 4, 6) is None
    keys, values = pool.view(1, 3, 2)
    pool.tensor[1, 0, 4, 3] = 5.0
    pool.tensor[1, 1, 3, 0] = 6.0
    assert (keys[7] == 5.0).all() and (values[0] == 6.0).all()
    assert keys.shape == (8, 2, 8)


def test_spans_that_make_no_sense_are_refused(small: LlamaModel) -> None:
    pool = small.new_pool(8, BLOCK)
    for span, words in (
        (Span([], 0, [0]), "0 tokens from 0 does not fit"),
        (Span([1], -1, [0]), "from -1 does not fit"),
        (Span([1] * 5, 0, [0]), "5 tokens from 0 does not fit 1 blocks of 4"),
        (Span([VOCAB], 0, [0]), "token ids must be in 0 … 63, got 64 … 64"),
    ):
        with pytest.raises(EngineError, match=words):
            small.forward([span], pool)
    with pytest.raises(EngineError, match="empty batch"):
        small.forward([], pool)


def test_nobody_who_wants_no_logits_gets_any(small: LlamaModel) -> None:
    pool = small.new_pool(8, BLOCK)
    assert small.forward([Span([1, 2], 0, [0], logits=False)], pool).shape == (0, VOCAB)


def test_scratch_memory_stays_after_the_first_call(small: LlamaModel) -> None:
    """A second call of the same size allocates none, whatever the first one's numbers."""
    model = LlamaModel(small.config, small.weights, small.fingerprint)
    pool = model.new_pool(16, BLOCK)
    spans = [Span(list(range(40)), 0, list(range(15, -1, -1)))]
    model.forward(spans, pool)
    held = model.scratch_bytes
    model.forward(spans, pool)
    assert model.scratch_bytes == held > 0
