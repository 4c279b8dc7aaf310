"""What packing may do to a number, and what it must not."""

from __future__ import annotations

import pytest
import torch

from geokv.cache.lossy import CODECS

SHAPE = (3, 2, 20, 2, 16)


def payload(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Vectors of very different sizes side by side, as keys and values of a model are."""
    random = torch.Generator().manual_seed(4)
    values = torch.randn(SHAPE, generator=random)
    sizes = 10 ** torch.empty(*SHAPE[:-1], 1).uniform_(-3, 1.5, generator=random)
    return (values * sizes).to(dtype)


@pytest.mark.parametrize(("name", "steps"), [("int8", 127), ("int4", 7), ("int3", 3)])
def test_integers_are_off_by_half_a_step_of_their_own_vector(name: str, steps: int) -> None:
    exact = payload()
    packed = CODECS[name].round_trip(exact)
    largest = exact.abs().amax(-1, keepdim=True)
    error = (packed - exact).abs() / largest
    # The scale itself is a float16: half a step, and 2^-11 of the largest number.
    assert error.max() <= 0.5 / steps + 2**-10
    assert error.max() >= 0.4 / steps, "finer than its bits allow"
    vector = packed[1, 1, 7, 1]
    assert len(vector.unique()) <= 2 * steps + 1


def test_floats_keep_their_relative_precision() -> None:
    exact = payload()
    assert ((CODECS["bf16"].round_trip(exact) - exact).abs() <= exact.abs() * 2**-8).all()
    seen = CODECS["fp8-e4m3"].round_trip(exact)
    # Three bits of mantissa; below 2^-6 steps are fixed at 2^-9.
    assert ((seen - exact).abs() <= (exact.abs() * 2**-4).clamp(min=2**-10)).all()
    assert ((seen - exact).abs() > exact.abs() * 2**-6).any()


def test_what_is_too_large_for_e4m3_saturates_and_zero_stays_zero() -> None:
    extreme = torch.zeros(1, 2, 1, 1, 4)
    extreme[0, 0, 0, 0] = torch.tensor([1e6, -1e6, 448.0, 0.0])
    for codec in CODECS.values():
        seen = codec.round_trip(extreme)
        assert seen.isfinite().all(), codec.name
        assert (seen[extreme == 0] == 0).all(), codec.name
    assert CODECS["fp8-e4m3"].round_trip(extreme)[0, 0, 0, 0].tolist() == [448, -448, 448, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shape_dtype_and_the_original_stay(dtype: torch.dtype) -> None:
    exact = payload(dtype)
    before = exact.clone()
    for codec in CODECS.values():
        seen = codec.round_trip(exact)
        assert (seen.shape, seen.dtype) == (exact.shape, dtype)
        assert torch.equal(exact, before), codec.name


def test_sizes() -> None:
    exact = payload()
    vectors, numbers = exact.numel() // 16, exact.numel()
    found = {name: codec.size_bytes(exact) for name, codec in CODECS.items()}
    assert found == {
        "bf16": 2 * numbers,
        "fp8-e4m3": numbers,
        "int8": numbers + 2 * vectors,
        "int4": numbers // 2 + 2 * vectors,
        "int3": numbers * 3 // 8 + 2 * vectors,
    }
