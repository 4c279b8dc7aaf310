"""Logits at every token, over a prefix whose KV is exact or altered."""

from __future__ import annotations

import random

import pytest
import torch

from geokv.engine import LlamaModel, Span
from geokv.engine.scoring import Scorer

TOKENS = random.Random(3).choices(range(64), k=32 + 150)
PREFIX, SUFFIX = TOKENS[:32], TOKENS[32:]


def test_exact_logits_are_those_of_one_token_at_a_time(small: LlamaModel) -> None:
    pool = small.new_pool(12)
    table = pool.allocate(12)
    wanted = [small.forward([Span(TOKENS[:33], 0, table)], pool)[0]]
    for at in range(33, len(TOKENS)):
        wanted.append(small.forward([Span([TOKENS[at]], at, table)], pool)[0])
    found = Scorer(small, PREFIX, len(SUFFIX)).logits(SUFFIX)
    assert (found - torch.stack(wanted)).abs().max() < 1e-4


def test_alterations_reach_the_prefix_and_do_not_stay(small: LlamaModel) -> None:
    scorer = Scorer(small, PREFIX, len(SUFFIX))
    exact = scorer.logits(SUFFIX)
    assert torch.equal(scorer.logits(SUFFIX, lambda kv: kv.clone()), exact)
    worse = scorer.logits(SUFFIX, torch.zeros_like)
    assert ((worse - exact).abs().amax(1) > 1e-3).all()
    assert torch.equal(scorer.logits(SUFFIX), exact)


def test_a_prefix_must_fill_its_blocks(small: LlamaModel) -> None:
    for tokens in ([], PREFIX[:17]):
        with pytest.raises(ValueError, match="whole blocks"):
            Scorer(small, tokens, 5)
