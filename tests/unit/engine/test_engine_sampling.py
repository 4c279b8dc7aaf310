from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.engine.sampling import Sampler, SamplingParams
from geokv.errors import EngineError

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])


def test_greedy_takes_the_largest() -> None:
    assert Sampler(SamplingParams()).pick(LOGITS) == 4


def test_the_same_seed_draws_the_same_tokens() -> None:
    draws = [
        [Sampler(SamplingParams(temperature=1.0, seed=seed)).pick(LOGITS) for _ in range(1)]
        + [s.pick(LOGITS) for s in [Sampler(SamplingParams(temperature=1.0, seed=seed))] * 30]
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_drawn_frequencies_follow_the_softmax() -> None:
    sampler = Sampler(SamplingParams(temperature=0.7, seed=5))
    draws = torch.tensor([sampler.pick(LOGITS) for _ in range(4000)])
    wanted = torch.softmax(LOGITS / 0.7, 0)
    found = torch.bincount(draws, minlength=5) / len(draws)
    assert (found - wanted).abs().max() < 0.03


def test_top_k_and_top_p_cut_where_they_should() -> None:
    keep = Sampler(SamplingParams(temperature=1.0, top_k=2)).probabilities(LOGITS)
    assert keep.nonzero().flatten().tolist() == [0, 4]
    assert keep.sum() == pytest.approx(1.0)
    # Softmax is 0.64, 0.23, 0.09, 0.03, 0.01: two tokens reach 0.8.
    keep = Sampler(SamplingParams(temperature=1.0, top_p=0.8)).probabilities(LOGITS)
    assert keep.nonzero().flatten().tolist() == [0, 4]
    keep = Sampler(SamplingParams(temperature=1.0, top_p=0.01)).probabilities(LOGITS)
    assert keep.nonzero().flatten().tolist() == [4]


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 40),
    temperature=st.floats(0.05, 5),
)
def test_any_setting_draws_a_likely_token(
    values: list[float], top_p: float, top_k: int, temperature: float
) -> None:
    logits = torch.tensor(values)
    sampler = Sampler(SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k))
    shares = sampler.probabilities(logits)
    kept = shares > 0
    assert shares.sum() == pytest.approx(1.0, abs=1e-4)
    if top_k:
        assert kept.sum() <= top_k
    full = torch.softmax(logits / temperature, 0)
    # Nothing that was cut is more likely than something that stayed.
    if (~kept).any():
        assert full[~kept].max() <= full[kept].min() + 1e-6
    assert kept[sampler.pick(logits)]


def test_damaged_logits_are_an_error_not_a_token() -> None:
    for value in (torch.nan, torch.inf):
        with pytest.raises(EngineError, match="not finite"):
            Sampler(SamplingParams()).pick(torch.tensor([0.0, value]))


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"stop": ("",)},
    ],
)
def test_values_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(EngineError):
        SamplingParams(**bad)
