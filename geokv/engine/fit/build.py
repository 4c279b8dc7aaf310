"""From measurements to the files under ``profiles/kernels`` and ``profiles/fitted``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from geokv.engine.fit.attention import Form, Group, fit_attention
from geokv.engine.fit.dense import (
    BYTE_KNOTS,
    HEAD_KNOTS,
    LAYER_KNOTS,
    Shaped,
    by_phase,
    fit_dense,
    fit_efficiencies,
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
from geokv.engine.fit.solve import error_of, fit_curve, rounded
from geokv.engine.fit.sources import (
    A100,
    H100,
    L8,
    L70,
    Q32,
    RTX,
    V0_HEADS,
    VIDUR_8B,
    VIDUR_70B,
    VLLM_8B,
    VLLM_32B,
    VLLM_HEADS,
    VLLM_KV_HEADS,
    Sources,
)
from geokv.engine.profile_cost import FitError, GpuProfile
from geokv.engine.profile_forms import Attention, Curve
from geokv.engine.profile_parts import ELEMENT_BYTES, Device, Kernels, ModelShape, part
from geokv.engine.profile_roofline import attentions, dense_curves, deployment, move

#: Chosen by looking at the measurements: queries in tiles of 128 (jumps at multiples),
#: contexts in tiles of 64 (steps), one block per multiprocessor side by side.
H100_PREFILL = Form(132, 128, 64, (16, 32, 64, 132, 133, 264, 528), (1, 2))
H100_DECODE = Form(132, 1, 64, (16, 132, 528, 2112, 4096), (1, 2, 3, 4, 8, 16))
#: vLLM 0.19: tiles of 64; decodes split the context and are bound by memory alone, so a
#: "wave" is just eight KV heads' worth of it.
RTX_PREFILL = Form(188, 64, 64, (32, 188, 376, 752, 1504, 3008, 8000), (1, 2, 4))
RTX_DECODE = Form(8, 1, 1, (8, 32, 64, 128, 256, 512, 1024, 2048), (1, 2, 4, 8))
#: Of the mixed launches every seventh is enough for ten constants; seven shares no factor
#: with the sizes of their grid, so that no line of it is left out.
MIXED_STEP = 7


def h100_prefill(sources: Sources, part_of: slice = slice(None)) -> Attention:
    """H100's prefill kernel; the paged launches count most, they are what servers run."""
    groups = [Group(sources.v0_prefill[part_of], V0_HEADS["70B_tp4"], 4.0)]
    for name, weight in (("8B_tp1", 1.0), ("70B_tp4", 2.0)):
        groups.append(Group(sources.v0_cold[name][part_of], V0_HEADS[name], weight))
    return fit_attention(H100_PREFILL, groups, tail=4, by_length=True)


def h100_decode(sources: Sources, part_of: slice = slice(None)) -> Attention:
    """H100's decode kernel."""
    return fit_attention(H100_DECODE, [Group(sources.v0_decode[part_of], V0_HEADS["70B_tp4"])])


def rtx_prefill(sources: Sources, part_of: slice = slice(None)) -> Attention:
    """RTX PRO 6000's prefill kernel, which also runs the decodes of mixed steps."""
    groups = []
    for launches in sources.vllm.values():
        alone = [launch for launch in launches if launch.phase == "prefill"]
        mixed = [launch for launch in launches if launch.phase == "mixed step"]
        groups += [
            Group(alone[part_of], VLLM_HEADS, 1.0),
            Group(mixed[::MIXED_STEP][part_of], VLLM_HEADS, 2.0),
        ]
    return fit_attention(RTX_PREFILL, groups)


def rtx_decode(sources: Sources, part_of: slice = slice(None)) -> Attention:
    """RTX PRO 6000's decode kernel."""
    groups = [
        Group(
            [launch for launch in launches if launch.phase == "decode"][part_of],
            VLLM_KV_HEADS[name],
        )
        for name, launches in sources.vllm.items()
    ]
    return fit_attention(RTX_DECODE, groups)


def fit_kernels(sources: Sources) -> dict[str, Kernels]:
    """Efficiencies and attention of each measured device."""
    prefill, decode = h100_prefill(sources), h100_decode(sources)
    small, large = part(ModelShape, L8), part(ModelShape, L70)
    h100 = _kernels(
        H100,
        (prefill, decode),
        "query",
        one_launch=False,
        all_reduce=_all_reduces(sources, H100),
        points=[
            Shaped(small, 1, sources.v0_dense["8B_tp1"]),
            *(Shaped(large, ways, sources.vidur[H100, VIDUR_70B, ways]) for ways in (1, 2, 4, 8)),
        ],
        sources=(
            f"{V0}, H100 (casys-kaist/LLMServingSim @5daddb2, MIT): Llama-3.1-8B layers, "
            "Llama-3.1-70B on four GPUs attention, a kernel of 2024: no split of the context, so "
            "that a small batch of long decodes is slower than today",
            f"{VIDUR}, H100 DGX (microsoft/vidur @7d47513, MIT): Llama-2-70b layers, all-reduce",
        ),
    )
    a100 = _kernels(
        A100,
        move(prefill, decode, 128, part(Device, H100), part(Device, A100)),
        "query",
        one_launch=False,
        all_reduce=_all_reduces(sources, A100),
        points=[
            Shaped(shape, ways, sources.vidur[A100, name, ways])
            for shape, name in ((small, VIDUR_8B), (large, VIDUR_70B))
            for ways in (1, 2, 4, 8)
        ],
        sources=(
            f"{VIDUR}, A100 DGX (microsoft/vidur @7d47513, MIT): Llama-3-8B and Llama-2-70b "
            "layers, all-reduce",
            "attention: that of H100, scaled by FlashAttention-2's FLOP/s and by memory rate; no "
            "attention measurement of an A100 is at hand",
        ),
    )
    rtx = _kernels(
        RTX,
        (rtx_prefill(sources), rtx_decode(sources)),
        "kv",
        one_launch=True,
        all_reduce={2: RTX_ALL_REDUCE},
        points=[
            Shaped(small, 1, sources.vllm_dense[VLLM_8B]),
            Shaped(part(ModelShape, Q32), 2, sources.vllm_dense[VLLM_32B]),
        ],
        sources=(
            f"{VLLM}, RTX PRO 6000 (casys-kaist/LLMServingSim @5daddb2, MIT): Llama-3.1-8B and "
            "Qwen3-32B on two GPUs, all operators",
            RTX_ALL_REDUCE_SOURCE,
        ),
    )
    return {H100: h100, A100: a100, RTX: rtx}


#: Two GPUs over PCIe. Nobody measured the operator; the two constants are what brings the
#: decode steps of the measured Qwen3-32B run (``bench``) to their length.
RTX_ALL_REDUCE = Curve(at=(0, 2**20), seconds=(60e-6, rounded(60e-6 + 2**20 / 20e9)))
RTX_ALL_REDUCE_SOURCE = (
    "all-reduce of two GPUs over PCIe: 60 µs + bytes / 20 GB/s, not measured as an operator but "
    "chosen so that the measured vLLM run of Qwen3-32B has its length"
)


def _all_reduces(sources: Sources, device: str) -> dict[int, Curve]:
    return {
        ways: fit_curve(found.tokens, found.seconds, BYTE_KNOTS)
        for (name, ways), found in sources.all_reduce.items()
        if name == device
    }


def _kernels(
    device_name: str,
    attention: tuple[Attention, Attention],
    walks: Literal["query", "kv"],
    *,
    one_launch: bool,
    all_reduce: dict[int, Curve],
    points: Sequence[Shaped],
    sources: tuple[str, ...],
) -> Kernels:
    device = part(Device, device_name)
    start = Kernels(
        compute_share=0.6,
        memory_share=0.7,
        layer_s=1e-5,
        prefill_attention=attention[0],
        decode_attention=attention[1],
        decode_walks=walks,
        one_launch=one_launch,
        all_reduce=all_reduce,
        error={"none": FitError(points=1, median=0.0, p95=0.0)},
        sources=sources,
    )
    found = fit_efficiencies(device, start, points)
    errors = {}
    for phase in ("prefill", "decode"):
        predicted, measured = [], []
        for group in points:
            chosen = by_phase(group.dense.tokens)[phase]
            predicted.append(group.predicted(device, found)[chosen])
            measured.append(group.dense.seconds[chosen])
        errors[f"dense {phase}"] = error_of(np.concatenate(predicted), np.concatenate(measured))
    return found.model_copy(update={"error": errors})


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
