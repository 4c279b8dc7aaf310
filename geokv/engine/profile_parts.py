"""What profiles are composed of: devices, shapes of models, and kernels fitted to devices.

One YAML file each under ``profiles/``; every number names its source.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from geokv.config import Strict, load_yaml, validate
from geokv.engine.profile_cost import CopyCost, FitError, Watts
from geokv.engine.profile_forms import Attention, Count, Curve, NotNegative, Positive
from geokv.errors import EngineError

#: Bytes per weight, activation and KV element: every profile stands for bfloat16.
ELEMENT_BYTES = 2


class Device(Strict):
    """A GPU's data sheet.

    Args:
        peak_flops: dense bfloat16 FLOP/s of the tensor cores (without sparsity).
        attention_flops: FLOP/s that the attention kernels of its time reach on it; only
            ratios between devices are used.
        bytes_per_s: of its memory.
        kernels: the measured device whose efficiencies it takes.
        sources: one for every number above.
    """

    title: str
    peak_flops: Positive
    attention_flops: Positive
    bytes_per_s: Positive
    memory_bytes: Count
    multiprocessors: Count
    kernels: str
    interconnect: str
    copy_cost: CopyCost
    watts: Watts
    sources: dict[str, str]

    @model_validator(mode="after")
    def _sourced(self) -> Device:
        numbers = {"peak_flops", "attention_flops", "bytes_per_s", "memory_bytes"}
        numbers |= {"multiprocessors", "kernels", "interconnect"}
        if missing := numbers - self.sources.keys():
            raise ValueError(f"no source for {', '.join(sorted(missing))}")
        return self


class ModelShape(Strict):
    """A model's dimensions as its ``config.json`` has them.

    Args:
        gated: three MLP matrices (SwiGLU) instead of two.
        tensor_parallel: how many GPUs it is served on.
    """

    title: str
    parameters: Count
    layers: Count
    hidden: Count
    intermediate: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocabulary: Count
    gated: bool
    tensor_parallel: tuple[Count, ...] = Field(min_length=1)
    source: str

    @model_validator(mode="after")
    def _divides(self) -> ModelShape:
        for ways in self.tensor_parallel:
            if self.heads % ways or self.kv_heads % ways:
                raise ValueError(f"heads do not divide into {ways} GPUs")
        return self

    @property
    def weights_bytes(self) -> int:
        """All parameters, in the 2 bytes of a bfloat16."""
        return self.parameters * ELEMENT_BYTES

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers, in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * ELEMENT_BYTES

    @property
    def matrix_operations(self) -> float:
        """Of one token in one layer's matrices, over ``hidden`` squared (Mooncake's b)."""
        weights = sum(outputs * inputs for outputs, inputs in self.matrices(1))
        return 2 * weights / self.hidden**2

    def matrices(self, ways: int) -> list[tuple[int, int]]:
        """``(outputs, inputs)`` of one layer's matrices on one of ``ways`` GPUs."""
        attention = self.heads * self.head_dim // ways
        qkv = attention + 2 * self.kv_heads * self.head_dim // ways
        inner = self.intermediate // ways
        up = (2 if self.gated else 1) * inner
        return [
            (qkv, self.hidden),
            (self.hidden, attention),
            (up, self.hidden),
            (self.hidden, inner),
        ]

    def pointwise_bytes(self, ways: int) -> int:
        """Bytes per token that one layer's norms, residuals, rotary and activation move.

        Two norms and two residual additions read and write the hidden state (ten times
        its size), rotary reads and writes queries and keys, the activation reads its one
        or two inputs and writes one.
        """
        rotary = 2 * (self.heads + self.kv_heads) * self.head_dim // ways
        inner = (3 if self.gated else 2) * self.intermediate // ways
        return ELEMENT_BYTES * (10 * self.hidden + rotary + inner)


class Kernels(Strict):
    """How a measured device's kernels compare with its data sheet, fitted to all its files.

    Args:
        compute_share: of the peak FLOP/s that matrix products reach.
        memory_share: of the memory's rate that they and pointwise kernels reach.
        layer_s: seconds of launches per layer, whatever the number of tokens.
        decode_walks: whose context a decode kernel walks: every ``query`` head's, or once
            for all that share a ``kv`` head.
        all_reduce: seconds over bytes, by the number of GPUs.
        error: of these efficiencies against every dense point of the device.
    """

    compute_share: Annotated[float, Field(gt=0, le=1)]
    memory_share: Annotated[float, Field(gt=0, le=1)]
    layer_s: NotNegative
    prefill_attention: Attention
    decode_attention: Attention
    decode_walks: Literal["query", "kv"]
    one_launch: bool
    all_reduce: dict[int, Curve]
    error: dict[str, FitError]
    sources: tuple[str, ...] = Field(min_length=1)


Part = TypeVar("Part", Device, ModelShape, Kernels)

PROFILES = resources.files("geokv.engine") / "profiles"


def profile_name(model: str, ways: int, device: str) -> str:
    """How a pair is called: ``model@device``, ``model-tp4@device`` on four of them."""
    return f"{model}{f'-tp{ways}' if ways > 1 else ''}@{device}"


def names(folder: str) -> list[str]:
    """What ``profiles/<folder>`` holds."""
    files = [item.name for item in (PROFILES / folder).iterdir()]
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


@cache
def part(kind: type[Part], name: str) -> Part:
    """One device, model shape or set of kernels.

    Raises:
        EngineError: there is none of that name.
        ConfigError: its file is wrong.
    """
    folder = {Device: "devices", ModelShape: "models", Kernels: "kernels"}[kind]
    known = names(folder)
    if name not in known:
        raise EngineError(f"unknown {folder[:-1]} {name!r}", f"known: {', '.join(known)}")
    with resources.as_file(PROFILES / folder / f"{name}.yaml") as path:
        return validate(kind, load_yaml(path), f"{folder}/{path.name}")
