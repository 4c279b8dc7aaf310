"""All measurements at hand, read once and named as the fits and the check use them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geokv.engine.fit.measured import Dense, Launch, Measurements, Pass
from geokv.engine.fit.solve import Array
from geokv.engine.profile_parts import Device, ModelShape, part

H100, A100, RTX = MEASURED_DEVICES = ("h100-sxm", "a100-80g", "rtxpro6000")
L8, L70, OLD70, BLOOM, Q32 = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-2-70b",
    "bloom-176b",
    "qwen3-32b",
)
VLLM_8B = "meta-llama_Llama-3.1-8B_bf16_tp1"
VLLM_32B = "Qwen_Qwen3-32B_bf16_tp2"
VIDUR_8B, VIDUR_70B = "meta-llama_Meta-Llama-3-8B", "meta-llama_Llama-2-70b-hf"
#: Query heads per GPU of the measured attention kernels.
V0_HEADS = {"8B_tp1": 32, "70B_tp4": 16}
VLLM_HEADS, VLLM_KV_HEADS = 32, {VLLM_8B: 8, VLLM_32B: 4}
#: What the measured names stand for: model, GPUs.
VLLM_RUNS = {VLLM_8B: (L8, 1), VLLM_32B: (Q32, 2)}


@dataclass(frozen=True)
class Sources:
    """Everything measured, read once."""

    v0_prefill: list[Launch]
    v0_decode: list[Launch]
    v0_cold: dict[str, list[Launch]]
    v0_dense: dict[str, Dense]
    v0_head: dict[str, Dense]
    vllm: dict[str, list[Launch]]
    vllm_dense: dict[str, Dense]
    vllm_head: dict[str, Dense]
    vidur: dict[tuple[str, str, int], Dense]
    all_reduce: dict[tuple[str, int], Dense]
    splitwise: dict[tuple[str, str, int], list[Pass]]

    @classmethod
    def read(cls, files: Measurements) -> Sources:
        """Read all files.

        Raises:
            ConfigError: one is missing.
        """
        prefill, decode = files.v0_attention()
        operators = {name: files.v0_operators(name) for name in V0_HEADS}
        layers = {"8B_tp1": part(ModelShape, L8).layers, "70B_tp4": part(ModelShape, L70).layers}
        vllm_layers = {VLLM_8B: layers["8B_tp1"], VLLM_32B: part(ModelShape, Q32).layers}
        counts = {VIDUR_8B: layers["8B_tp1"], VIDUR_70B: layers["70B_tp4"]}
        vidur = {
            (device, model, ways): files.vidur_dense(short, model, ways, counts[model])
            for device, short, model in (
                (H100, "h100", VIDUR_70B), (A100, "a100", VIDUR_70B), (A100, "a100", VIDUR_8B),
            )
            for ways in (1, 2, 4, 8)
        }  # fmt: skip
        stacks = [(OLD70, "llama2-70b", ways) for ways in (2, 4, 8)] + [(BLOOM, "bloom-176b", 8)]
        return cls(
            v0_prefill=prefill,
            v0_decode=decode,
            v0_cold={
                name: [
                    Launch((n, 0), (), float(seconds))
                    for n, seconds in enumerate(by["attn"], start=1)
                ]
                for name, by in operators.items()
            },
            v0_dense={name: files.v0_dense(name, layers[name]) for name in V0_HEADS},
            v0_head={name: _counted(by["lm_head"]) for name, by in operators.items()},
            vllm={name: _possible(files.vllm_attention(name), name) for name in VLLM_KV_HEADS},
            vllm_dense={name: files.vllm_dense(name, vllm_layers[name]) for name in VLLM_KV_HEADS},
            vllm_head={name: files.vllm_head(name) for name in VLLM_KV_HEADS},
            vidur=vidur,
            all_reduce={
                (device, ways): files.vidur_all_reduce(short, ways)
                for device, short in ((H100, "h100"), (A100, "a100"))
                for ways in (2, 4, 8)
            },
            splitwise={
                (device, model, ways): files.splitwise(theirs, short, ways)
                for device, short in ((H100, "h100-80gb"), (A100, "a100-80gb"))
                for model, theirs, ways in stacks
            },
        )


def _counted(seconds: Array) -> Dense:
    return Dense(np.arange(1, len(seconds) + 1, dtype=np.float64), seconds)


def _possible(launches: list[Launch], name: str) -> list[Launch]:
    """Launches over no more KV than the memory holds beside the weights.

    The others were measured with KV that does not exist: a full one re-read from memory by
    every head, which takes twice the time of any that can occur.
    """
    model, ways = VLLM_RUNS[name]
    shape, device = part(ModelShape, model), part(Device, RTX)
    room = (device.memory_bytes * ways - shape.weights_bytes) // shape.kv_bytes_per_token
    return [one for one in launches if sum(one.prefill or ()) + sum(one.decode) <= room]
