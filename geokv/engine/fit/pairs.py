"""From measurements to the files under ``profiles/fitted``: a model on a number of devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geokv.engine.fit.dense import (
    HEAD_KNOTS,
    LAYER_KNOTS,
    fit_dense,
    fit_stack,
    with_all_reduce,
)
from geokv.engine.fit.measured import (
    SPLITWISE,
    V0,
    VIDUR,
    VLLM,
    Dense,
    Pass,
)
from geokv.engine.fit.sources import (
    A100,
    H100,
    L8,
    L70,
    Q32,
    RTX,
    VIDUR_8B,
    VIDUR_70B,
    VLLM_8B,
    VLLM_32B,
    Sources,
)
from geokv.engine.profile_cost import FitError, GpuProfile
from geokv.engine.profile_parts import ELEMENT_BYTES, Device, Kernels, ModelShape, part
from geokv.engine.profile_roofline import attentions, dense_curves, deployment


def dense_points(
    sources: Sources, kernels: Kernels, model: str, ways: int, device: str
) -> Dense | None:
    """The measured passes, all-reduces included, that a fitted profile's layers come from."""
    shape = part(ModelShape, model)
    if (model, device) == (L8, H100):
        return sources.v0_dense["8B_tp1"]
    vidur = (device, VIDUR_8B if model == L8 else VIDUR_70B, ways)
    if model in (L8, L70) and vidur in sources.vidur:
        found = sources.vidur[vidur]
        reduce = sources.all_reduce.get((device, ways))
        return with_all_reduce(found, shape, reduce) if reduce else found
    if (model, ways, device) == (L8, 1, RTX):
        return sources.vllm_dense[VLLM_8B]
    if (model, ways, device) == (Q32, 2, RTX):
        found = sources.vllm_dense[VLLM_32B]
        sizes = [2**10, *(int(n) * shape.hidden * ELEMENT_BYTES for n in found.tokens)]
        seconds = np.array([kernels.all_reduce[2](size) for size in sizes])
        return with_all_reduce(found, shape, Dense(np.array(sizes, dtype=np.float64), seconds))
    return None


def head_points(sources: Sources, model: str, ways: int, device: str) -> Dense | None:
    """The measured output head; the roofline's is taken where there is none."""
    return {
        (L8, 1, H100): sources.v0_head["8B_tp1"],
        (L70, 4, H100): sources.v0_head["70B_tp4"],
        (L8, 1, RTX): sources.vllm_head[VLLM_8B],
        (Q32, 2, RTX): sources.vllm_head[VLLM_32B],
    }.get((model, ways, device))


_SAME = "the same layers as Llama-2-70b"
#: Pairs with measured layers, and where these are from.
FITTED = {
    (L8, 1, H100): f"layers, output head and cold attention: {V0}, H100, Llama-3.1-8B; its norms "
    "and rotary embedding are not fused, a quarter of the time of large passes",
    (L8, 1, RTX): f"everything: {VLLM}, RTX PRO 6000, Llama-3.1-8B",
    (Q32, 2, RTX): f"everything but the all-reduce: {VLLM}, RTX PRO 6000, Qwen3-32B on two GPUs",
    (L8, 1, A100): f"layers: {VIDUR}, A100, Llama-3-8B (the same layers)",
    **{
        (L8, ways, A100): f"layers and all-reduce: {VIDUR}, A100 DGX, Llama-3-8B on {ways} GPUs"
        for ways in (2, 4, 8)
    },
    **{
        (L70, ways, device): f"layers and all-reduce: {VIDUR}, {said} DGX, {ways} GPUs, {_SAME}"
        for device, said in ((H100, "H100"), (A100, "A100"))
        for ways in (2, 4, 8)
    },
}


def fit_pair(
    sources: Sources,
    kernels: Kernels,
    model: str,
    ways: int,
    device_name: str,
    part_of: slice = slice(None),
    passes: Sequence[Pass] | None = None,
) -> GpuProfile:
    """The profile of a pair whose layers or whole passes were measured.

    Args:
        part_of: which of the points the curves are fitted to.
        passes: which of the whole passes; all when None.
    """
    shape, device = part(ModelShape, model), part(Device, device_name)
    layers_s, head_s = dense_curves(shape, ways, device, kernels)
    prefill, decode = attentions(shape.head_dim, device, kernels)
    if head := head_points(sources, model, ways, device_name):
        head_s = fit_dense(head.part(part_of), HEAD_KNOTS)
    stack = passes or sources.splitwise.get((device_name, model, ways))
    if dense := dense_points(sources, kernels, model, ways, device_name):
        layers_s = fit_dense(dense.part(part_of), LAYER_KNOTS)
    profile = GpuProfile(
        kind="fitted",
        layers_s=layers_s,
        head_s=head_s,
        prefill_attention=prefill,
        decode_attention=decode,
        fit_error={"none": FitError(points=1, median=0.0, p95=0.0)},
        sources=_said(model, ways, device_name, kernels),
        **deployment(model, ways, device_name, kernels),
    )
    return fit_stack(stack, profile, device) if stack else profile


def _said(model: str, ways: int, device: str, kernels: Kernels) -> tuple[str, ...]:
    own = FITTED.get((model, ways, device)) or (
        f"whole passes: {SPLITWISE} (Mutinifni/splitwise-sim @8f99e7d, MIT), end to end on a "
        "serving stack of 2023, whose host sets a floor to short steps; a whole prompt is one pass"
    )
    return (own, *kernels.sources)


def fitted_pairs(sources: Sources) -> list[tuple[str, int, str]]:
    """``(model, GPUs, device)`` of every fitted profile."""
    return [*FITTED, *((model, ways, device) for device, model, ways in sources.splitwise)]
