"""From measurements to the files under ``profiles/kernels``: what a device makes of its peaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from geokv.engine.fit.attention import Form, Group, fit_attention
from geokv.engine.fit.dense import (
    BYTE_KNOTS,
    Shaped,
    by_phase,
    fit_efficiencies,
)
from geokv.engine.fit.measured import (
    V0,
    VIDUR,
    VLLM,
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
from geokv.engine.profile_cost import FitError
from geokv.engine.profile_forms import Attention, Curve
from geokv.engine.profile_parts import Device, Kernels, ModelShape, part
from geokv.engine.profile_roofline import move

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
