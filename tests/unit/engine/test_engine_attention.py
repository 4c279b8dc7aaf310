"""The parts of the model against the formulas they stand for, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geokv.engine.attention import attend, attend_together
from geokv.engine.dense import FEW_ROWS, Dense
from geokv.engine.rope import angles, rotate_

HEADS = st.sampled_from([(4, 2), (4, 1), (3, 3), (9, 3)])
DIM = 8
CPU = torch.device("cpu")
#: Of outputs whose size is about one: bfloat16 has eight bits.
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 0.03}


def draw(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def formula(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int
) -> torch.Tensor:
    """Softmax attention with an explicit mask and repeated heads, float64."""
    group = queries.shape[1] // keys.shape[1]
    keys, values = (t.double().repeat_interleave(group, 1) for t in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", queries.double(), keys) / queries.shape[2] ** 0.5
    hidden = torch.ones(len(queries), len(keys), dtype=torch.bool).triu(start + 1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values)


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(0, 40),
    new=st.integers(1, 40),
    heads=HEADS,
    masked=st.booleans(),
    dtype=st.sampled_from(list(ROUNDING)),
)
def test_both_kernels_are_the_formula(
    start: int, new: int, heads: tuple[int, int], masked: bool, dtype: torch.dtype
) -> None:
    # Rows wider than the heads, as queries lie beside keys and values in the model.
    queries = draw(new, heads[0] + 2, DIM, seed=new, dtype=dtype)[:, : heads[0]]
    keys, values = draw(2, start + new, heads[1], DIM, seed=start, dtype=dtype)
    out = torch.empty(new, heads[0], DIM, dtype=dtype)
    attend(queries, (keys, values), start, out, masked)
    wanted = formula(queries, keys, values, start)
    assert (out.double() - wanted).abs().max() < ROUNDING[dtype]


@settings(max_examples=40, deadline=None)
@given(
    prefix=st.integers(1, 40),
    rests=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    heads=HEADS,
    dtype=st.sampled_from(list(ROUNDING)),
)
def test_attending_together_is_attending_alone(
    prefix: int, rests: list[int], heads: tuple[int, int], dtype: torch.dtype
) -> None:
    queries = draw(len(rests), heads[0], DIM, seed=1, dtype=dtype)
    shared = draw(2, prefix, heads[1], DIM, seed=2, dtype=dtype)
    own = [draw(2, rest, heads[1], DIM, seed=3 + i, dtype=dtype) for i, rest in enumerate(rests)]
    out = attend_together(queries, (shared[0], shared[1]), ((k, v) for k, v in own))
    for i, rest in enumerate(own):
        keys, values = torch.cat((shared, rest), dim=1)
        wanted = formula(queries[i : i + 1], keys, values, len(keys) - 1)
        assert (out[i : i + 1].double() - wanted).abs().max() < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("count", [1, 2, 7, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("biased", [False, True])
def test_products_of_few_and_many_rows_are_the_formula(
    dtype: torch.dtype, count: int, biased: bool
) -> None:
    rows = draw(count, 24, seed=1, dtype=dtype)
    weight = draw(10, 24, seed=2, dtype=dtype) / 5
    bias = draw(10, seed=3, dtype=dtype) if biased else None
    wanted = rows.double() @ weight.double().t() + (bias.double() if bias is not None else 0)
    dense = Dense(dtype, CPU)
    # A slice of a wider buffer, as the model asks for queries, keys and values.
    out = torch.zeros(count, 14, dtype=dtype)[:, 2:12]
    dense.linear(rows, weight, bias, out)
    assert (out.double() - wanted).abs().max() < 2 * ROUNDING[dtype]
    dense.add_linear(rows, weight, bias, out)
    assert (out.double() - 2 * wanted).abs().max() < 4 * ROUNDING[dtype]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_norms_are_computed_wide_and_may_be_in_place(dtype: torch.dtype) -> None:
    rows = 3e4 * draw(5, 3, 8, seed=1, dtype=torch.float32).sign().to(dtype)
    weight = draw(8, seed=2, dtype=dtype)
    wanted = rows.double().sign() * weight.double()
    dense = Dense(dtype, CPU)
    assert torch.allclose(
        dense.rms_norm(rows, weight, 1e-5, torch.empty_like(rows)).double(), wanted, rtol=1e-2
    )
    dense.rms_norm(rows, weight, 1e-5, rows)
    assert torch.allclose(rows.double(), wanted, rtol=1e-2)


def test_rotation_is_multiplication_by_complex_numbers() -> None:
    heads = draw(6, 3, DIM, seed=1, dtype=torch.float32)
    positions = torch.tensor([0, 1, 2, 70, 500, 8000])
    inverse = 1.0 / 10_000 ** (torch.arange(0, DIM, 2) / DIM)
    turn = torch.polar(torch.ones(6, DIM // 2), positions[:, None] * inverse)[:, None]
    product = torch.complex(*heads.chunk(2, dim=-1)) * turn
    cosine, sine = angles(inverse, positions, torch.float32)
    rotate_(heads, cosine, sine, torch.empty(6, 3, DIM // 2))
    assert (heads - torch.cat((product.real, product.imag), -1)).abs().max() < 1e-5
