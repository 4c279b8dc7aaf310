"""Synthetic content: the answer stands for every byte of the context in the pool."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.engine.pool import BlockPool
from geokv.engine.protocol import Model
from geokv.engine.sampling import Sampler, SamplingParams
from geokv.engine.span import Span
from geokv.engine.synthetic import SyntheticModel
from geokv.engine.tiny import TINY
from geokv.errors import EngineError

SIZE = 4
MODEL = SyntheticModel(TINY)
LAYERED = SyntheticModel(TINY, layers=3)
prompts = st.lists(st.integers(0, 263), min_size=1, max_size=60)


def computed(model: Model, tokens: list[int], seed: int = 0) -> tuple[BlockPool, list[int]]:
    """A pool with ``tokens`` in it, and their table in a random order."""
    pool = model.new_pool(64, SIZE)
    pool.allocate(64)
    table = random.Random(seed).sample(range(64), -(-len(tokens) // SIZE))
    if tokens:
        model.forward([Span(tokens, 0, table, logits=False)], pool)
    return pool, table


def answer(model: Model, tokens: list[int], pool: BlockPool, table: list[int]) -> torch.Tensor:
    """Logits after ``tokens``, of which all but the last are in the pool."""
    return model.forward([Span(tokens[-1:], len(tokens) - 1, table)], pool)[0]


def cold(model: Model, tokens: list[int]) -> torch.Tensor:
    pool = model.new_pool(64, SIZE)
    return model.forward([Span(tokens, 0, list(range(-(-len(tokens) // SIZE))))], pool)[0]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(batch=st.lists(prompts, min_size=1, max_size=4), data=st.data())
def test_any_chunking_batching_and_block_order_gives_the_same(batch, data):
    model = data.draw(st.sampled_from([MODEL, LAYERED]))
    pool = model.new_pool(64, SIZE)
    free = list(data.draw(st.permutations(range(64))))
    tables = [[free.pop() for _ in range(-(-len(tokens) // SIZE))] for tokens in batch]
    done = [0] * len(batch)
    found: dict[int, torch.Tensor] = {}
    while len(found) < len(batch):
        open_ones = [i for i in range(len(batch)) if i not in found]
        chosen = data.draw(st.lists(st.sampled_from(open_ones), min_size=1, unique=True))
        spans = []
        for i in chosen:
            stop = data.draw(st.integers(done[i] + 1, len(batch[i])))
            spans.append(Span(batch[i][done[i] : stop], done[i], tables[i], stop == len(batch[i])))
            done[i] = stop
        rows = iter(model.forward(spans, pool))
        found |= {i: next(rows) for i, s in zip(chosen, spans, strict=True) if s.logits}
    for i, tokens in enumerate(batch):
        assert torch.equal(found[i], cold(model, tokens))


@settings(max_examples=50, deadline=None)
@given(tokens=prompts, position=st.integers(0, 59), token=st.integers(0, 263))
def test_every_token_counts(tokens, position, token):
    other = list(tokens)
    other[position % len(tokens)] = token
    assert torch.equal(cold(MODEL, tokens), cold(MODEL, other)) == (tokens == other)


def test_a_row_has_one_clear_maximum_of_printable_text():
    rows = torch.stack([cold(MODEL, [i, 7]) for i in range(200)])
    first, second = rows.topk(2).values.T
    assert (first - second).min() >= 8
    drawn = set(rows.argmax(1).tolist())
    assert drawn <= set(range(32, 127)) and len(drawn) > 60


TOKENS = [5 * i % 251 for i in range(10 * SIZE)]
POSITIONS = range(len(TOKENS) // SIZE)


@pytest.mark.parametrize("model", [MODEL, LAYERED], ids=["one layer", "three layers"])
@pytest.mark.parametrize("place", POSITIONS)
@pytest.mark.parametrize("kind", ["flipped", "zeroed", "foreign", "elsewhere", "older"])
def test_a_wrong_block_is_seen_and_changes_the_answer(model, place, kind, monkeypatch):
    pool, table = computed(model, TOKENS[:-1])
    right = answer(model, TOKENS, pool, table)
    block = table[place]
    if kind == "flipped":
        layer, half = place % model.config.layers, place % 2
        byte = (place * 5) % model.config.head_dim
        pool.tensor[layer, half, block, place % SIZE if place < 9 else 0, 0, byte] ^= 1 << place % 7
    elif kind == "zeroed":
        pool.tensor[:, :, block] = 0
    elif kind == "foreign":
        other, there = computed(model, [t ^ 1 for t in TOKENS])
        pool.tensor[:, :, block] = other.tensor[:, :, there[place]]
    elif kind == "elsewhere":
        pool.tensor[:, :, block] = pool.tensor[:, :, table[place - 1]].clone()
    else:
        # Whole and in its place, but of a prompt that differs before it.
        before = list(TOKENS)
        before[max(0, place * SIZE - 1)] ^= 1
        other, there = computed(model, before)
        pool.tensor[:, :, block] = other.tensor[:, :, there[place]]
    damaged = model.damaged
    assert answer(model, TOKENS, pool, table).isnan().all()
    assert model.damaged == damaged + 1
    assert model.last_damage is not None and "what does not belong there" in model.last_damage
    with pytest.raises(EngineError, match="damaged"):
        Sampler(SamplingParams()).pick(answer(model, TOKENS, pool, table))
    # and it would be another answer if nobody looked
    monkeypatch.setattr(model, "_first_bad", lambda *_: None)
    assert not torch.equal(answer(model, TOKENS, pool, table), right)


def test_the_place_of_the_damage_is_named():
    pool, table = computed(MODEL, TOKENS[:-1])
    pool.tensor[0, 1, table[6], 2, 0, 9] ^= 4
    answer(MODEL, TOKENS, pool, table)
    assert MODEL.last_damage == (
        f"block {table[6]} of the pool holds at position {6 * SIZE + 2} what does not belong there"
    )


def test_damage_in_one_request_leaves_the_others_alone():
    pool, table = computed(MODEL, TOKENS[:-1])
    free = next(block for block in range(64) if block not in table)
    pool.tensor[0, 0, table[3]] ^= 1
    rows = MODEL.forward([Span(TOKENS[-1:], len(TOKENS) - 1, table), Span([1, 2], 0, [free])], pool)
    assert rows[0].isnan().all()
    assert torch.equal(rows[1], cold(MODEL, [1, 2]))


def test_a_whole_prefix_of_another_prompt_is_no_damage_but_gives_another_answer():
    pool, table = computed(MODEL, [t ^ 1 for t in TOKENS])
    assert not torch.equal(answer(MODEL, TOKENS, pool, table), cold(MODEL, TOKENS))


def test_content_of_another_seed_is_damage():
    pool, table = computed(SyntheticModel(TINY, seed=1), TOKENS)
    assert answer(MODEL, TOKENS, pool, table).isnan().all()
    assert SyntheticModel(TINY, seed=1).fingerprint != MODEL.fingerprint
    assert SyntheticModel(TINY).fingerprint == MODEL.fingerprint


def test_a_checked_context_that_changes_is_checked_again():
    pool, table = computed(MODEL, TOKENS[:-1])
    right = answer(MODEL, TOKENS, pool, table)
    pool.tensor[0, 0, table[0], 0] ^= 1
    assert answer(MODEL, TOKENS, pool, table).isnan().all()
    pool.tensor[0, 0, table[0], 0] ^= 1
    assert torch.equal(answer(MODEL, TOKENS, pool, table), right)


def test_blocks_travel_to_any_place_of_another_pool():
    here, table = computed(LAYERED, TOKENS[:-1], seed=1)
    there = LAYERED.new_pool(32, SIZE)
    there.allocate(32)
    target = list(range(31, 31 - len(table), -1))
    payload = torch.empty(3, 2, len(table) * SIZE, 1, 16, dtype=LAYERED.dtype)
    here.gather(table, payload)
    there.scatter(target, payload)
    assert torch.equal(answer(LAYERED, TOKENS, there, target), cold(LAYERED, TOKENS))


@pytest.mark.parametrize(
    ("span", "what"),
    [
        (Span([], 0, [0]), "does not fit"),
        (Span([1] * 5, 0, [0]), "does not fit"),
        (Span([1], -1, [0]), "does not fit"),
        (Span([264], 0, [0]), "token ids"),
        (Span([-1], 0, [0]), "token ids"),
    ],
)
def test_spans_that_cannot_be(span, what):
    with pytest.raises(EngineError, match=what):
        MODEL.forward([span], MODEL.new_pool(2, SIZE))


def test_a_context_beyond_the_models_longest_is_refused():
    short = SyntheticModel(TINY, max_tokens=SIZE)
    table = [0, 1]
    with pytest.raises(EngineError, match=f"{SIZE + 1} tokens are more than the model's {SIZE}"):
        short.forward([Span([1] * (SIZE + 1), 0, table)], short.new_pool(2, SIZE))


def test_an_empty_batch_and_a_foreign_pool_are_refused():
    with pytest.raises(EngineError, match="empty batch"):
        MODEL.forward([], MODEL.new_pool(2, SIZE))
    with pytest.raises(EngineError, match="new_pool"):
        MODEL.forward([Span([1], 0, [0])], LAYERED.new_pool(2, SIZE))
