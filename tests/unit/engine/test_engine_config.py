from __future__ import annotations

from typing import Any

import pytest
import torch

from geokv.engine.config import ModelConfig, RopeScaling
from geokv.errors import EngineError

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def test_llama_3_1_8b_has_its_published_kv_size() -> None:
    config = ModelConfig.from_hf(LLAMA)
    assert config.head_dim == 128
    assert config.rope_scaling == RopeScaling(8.0, 1.0, 4.0, 8192)
    assert config.kv_bytes_per_token(torch.bfloat16) == 131_072


def test_both_spellings_of_rotary_settings_agree() -> None:
    new = {k: v for k, v in LLAMA.items() if not k.startswith("rope")}
    new["rope_parameters"] = LLAMA["rope_scaling"] | {"rope_theta": 500_000.0}
    assert ModelConfig.from_hf(new) == ModelConfig.from_hf(LLAMA)


def test_qwen2_has_query_key_value_biases_and_no_output_bias() -> None:
    config = ModelConfig.from_hf(LLAMA | {"architectures": ["Qwen2ForCausalLM"]})
    assert (config.qkv_bias, config.out_bias, config.qk_norm) == (True, False, False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
        ({"architectures": None}, "unknown architecture"),
        ({"sliding_window": 4096}, "sliding-window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor"),
        ({"num_key_value_heads": 7}, "7 KV heads"),
        ({"head_dim": 33}, "odd"),
        ({"num_hidden_layers": 0}, "layers must be"),
    ],
)
def test_what_cannot_be_computed_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        ModelConfig.from_hf(LLAMA | change)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(EngineError, match="'vocab_size'"):
        ModelConfig.from_hf({k: v for k, v in LLAMA.items() if k != "vocab_size"})


def test_a_window_that_is_switched_off_is_accepted() -> None:
    assert ModelConfig.from_hf(LLAMA | {"sliding_window": 4096, "use_sliding_window": False})
    assert ModelConfig.from_hf(LLAMA | {"sliding_window": None})
