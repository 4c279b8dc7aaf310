"""The shape of a decoder-only model of the Llama family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from geokv.errors import EngineError

#: What each architecture adds to Llama: (qkv biases by default, QK-norm).
_ARCHITECTURES: dict[str, tuple[bool, bool]] = {
    "LlamaForCausalLM": (False, False),
    "MistralForCausalLM": (False, False),
    "Qwen2ForCausalLM": (True, False),
    "Qwen3ForCausalLM": (False, True),
}


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's frequency scaling (``rope_type: llama3`` of its config.json)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_tokens: int


@dataclass(frozen=True)
class ModelConfig:
    """Everything but the weights. ``max_tokens`` bounds prompt plus answer."""

    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_tokens: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_norm_eps: float = 1e-5
    tied_embeddings: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False

    def __post_init__(self) -> None:
        for field in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "max_tokens",
        ):
            if getattr(self, field) < 1:
                raise EngineError(f"model {self.name}: {field} must be ≥ 1")
        if self.heads % self.kv_heads:
            raise EngineError(
                f"model {self.name}: {self.heads} heads do not divide into {self.kv_heads} KV heads"
            )
        if self.head_dim % 2:
            raise EngineError(f"model {self.name}: rotary head_dim {self.head_dim} is odd")

    def kv_bytes_per_token(self, dtype: torch.dtype = torch.float32) -> int:
        """Bytes of keys and values that one token leaves in the cache, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * dtype.itemsize

    @classmethod
    def from_hf(cls, data: Mapping[str, Any], name: str = "") -> ModelConfig:
        """Read the mapping of a ``config.json`` as ``transformers`` 4 and 5 write it.

        Raises:
            EngineError: an architecture, attention window, activation or rotary
                scaling that this engine does not compute, or a missing key.
        """
        architecture = (list(data.get("architectures") or []) or ["(none)"])[0]
        if architecture not in _ARCHITECTURES:
            raise EngineError(
                f"unknown architecture {architecture}",
                f"geokv computes {', '.join(sorted(_ARCHITECTURES))}",
            )
        _refuse_windows(data, architecture)
        if data.get("quantization_config"):
            raise EngineError(
                f"{architecture}: quantized weights are not read",
                "take the checkpoint in float32, float16 or bfloat16",
            )
        if (share := _merged_rope(data).get("partial_rotary_factor", 1.0)) != 1.0:
            raise EngineError(f"{architecture}: rotary embedding of {share} of a head is not read")
        if (activation := data.get("hidden_act", "silu")) not in {"silu", "swish"}:
            raise EngineError(f"{architecture}: activation {activation!r} is not SwiGLU's silu")
        bias_default, qk_norm = _ARCHITECTURES[architecture]
        # Qwen2 has biases on q, k, v whatever its config says, and none on o.
        attention_bias = bool(data.get("attention_bias", False))
        theta, scaling = _rope(data, architecture)
        try:
            heads = int(data["num_attention_heads"])
            hidden = int(data["hidden_size"])
            return cls(
                name=name or str(data.get("_name_or_path") or architecture),
                vocab_size=int(data["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(data["intermediate_size"]),
                layers=int(data["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(data.get("num_key_value_heads") or heads),
                head_dim=int(data.get("head_dim") or hidden // heads),
                max_tokens=int(data["max_position_embeddings"]),
                rope_theta=theta,
                rope_scaling=scaling,
                rms_norm_eps=float(data.get("rms_norm_eps", 1e-6)),
                tied_embeddings=bool(data.get("tie_word_embeddings", False)),
                qk_norm=qk_norm,
                qkv_bias=bias_default or attention_bias,
                out_bias=attention_bias and not bias_default,
                mlp_bias=bool(data.get("mlp_bias", False)),
            )
        except KeyError as error:
            raise EngineError(f"{architecture}: config.json has no {error.args[0]!r}") from None


def _refuse_windows(data: Mapping[str, Any], architecture: str) -> None:
    kinds = set(data.get("layer_types") or [])
    # Qwen configs carry a window size that is off unless use_sliding_window says so.
    active = data.get("use_sliding_window", data.get("sliding_window") is not None)
    if kinds - {"full_attention"} or (active and data.get("sliding_window") is not None):
        raise EngineError(
            f"{architecture}: sliding-window attention is not supported "
            f"(sliding_window: {data.get('sliding_window')}, layer_types: {sorted(kinds)})",
            "use a checkpoint with full attention in every layer",
        )


def _merged_rope(data: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary settings wherever a config keeps them."""
    top = {key: data[key] for key in ("partial_rotary_factor",) if data.get(key) is not None}
    return top | dict(data.get("rope_scaling") or {}) | dict(data.get("rope_parameters") or {})


def _rope(data: Mapping[str, Any], architecture: str) -> tuple[float, RopeScaling | None]:
    """Rotary base and scaling from ``rope_parameters`` (5.x) or the two older keys."""
    merged = _merged_rope(data)
    theta = float(merged.get("rope_theta") or data.get("rope_theta") or 10_000.0)
    kind = merged.get("rope_type", merged.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise EngineError(f"{architecture}: rotary scaling {kind!r} is not supported (llama3 is)")
    try:
        return theta, RopeScaling(
            factor=float(merged["factor"]),
            low_freq_factor=float(merged["low_freq_factor"]),
            high_freq_factor=float(merged["high_freq_factor"]),
            original_max_tokens=int(merged["original_max_position_embeddings"]),
        )
    except KeyError as error:
        raise EngineError(f"{architecture}: llama3 rotary scaling has no {error}") from None
