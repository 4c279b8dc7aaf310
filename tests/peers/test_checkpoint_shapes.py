"""Attention of every grouping, sharded and tied files, scaled rope: against transformers."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from geokv.engine import LlamaModel, Span, load_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own deprecations are not ours
    import transformers

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 1024,
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA_3_1 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPES: dict[str, tuple[type, type, dict[str, Any]]] = {
    "mqa": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig,
        {"num_key_value_heads": 1},
    ),
    "mha": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig,
        {"num_key_value_heads": 6},
    ),
    "gqa-tied-llama-3.1": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig,
        {"num_key_value_heads": 3, "tie_word_embeddings": True, "rope_parameters": LLAMA_3_1},
    ),
    "qwen2-mqa-tied": (
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config,
        {"num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
    "qwen3-mha-tied": (
        transformers.Qwen3ForCausalLM,
        transformers.Qwen3Config,
        {"num_key_value_heads": 6, "head_dim": 12, "tie_word_embeddings": True},
    ),
}


@pytest.fixture(params=sorted(SHAPES))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, LlamaModel]:
    """A random checkpoint in many shards, as transformers holds it and as we read it."""
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model, config, extra = SHAPES[request.param]
    theirs = model(config(**SIZES, **extra)).eval().float()
    # Fresh models have zero biases and unit norms, which would hide mistakes there.
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.1)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif "embed_tokens" in name:
                parameter.mul_(4)
    theirs.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    ours = load_model(tmp_path)
    assert ours.config.tied_embeddings == bool(extra.get("tie_word_embeddings"))
    assert (ours.weights.head is ours.weights.embedding) == ours.config.tied_embeddings
    return theirs, ours


def test_the_same_logits_whole_in_chunks_and_token_by_token(
    pair: tuple[Any, LlamaModel],
) -> None:
    theirs, ours = pair
    tokens = random.Random(1).choices(range(160), k=300)
    with torch.no_grad():
        wanted = theirs(torch.tensor([tokens]), use_cache=False).logits[0]
    for steps in ([300], [100, 100, 100], [290, *[1] * 10]):
        pool = ours.new_pool(40, 8)
        table = pool.allocate(40)[::-1]
        at = 0
        for size in steps:
            logits = ours.forward([Span(tokens[at : at + size], at, table)], pool)[0]
            at += size
            assert (logits - wanted[at - 1]).abs().max() < 1e-4, (steps, at)
    assert len(set(wanted[200:].argmax(-1).tolist())) > 5, "choices that never change prove little"
