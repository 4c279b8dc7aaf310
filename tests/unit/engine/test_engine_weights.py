from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from geokv.engine import LlamaModel, Span, load_model
from geokv.engine.model import LayerWeights
from geokv.errors import EngineError

_NAMES = {
    "input_norm": "input_layernorm.weight",
    "query": "self_attn.q_proj.weight",
    "key": "self_attn.k_proj.weight",
    "value": "self_attn.v_proj.weight",
    "out": "self_attn.o_proj.weight",
    "post_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def tensors_of(model: LlamaModel) -> dict[str, torch.Tensor]:
    weights = model.weights
    found = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.norm,
        "lm_head.weight": weights.head,
    }
    for index, layer in enumerate(weights.layers):
        for field in LayerWeights.__dataclass_fields__:
            if (tensor := getattr(layer, field)) is not None:
                found[f"model.layers.{index}.{_NAMES[field]}"] = tensor
    return found


def write(model: LlamaModel, folder: Path, shards: int = 1, **config: Any) -> Path:
    shape = model.config
    data = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_tokens,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
    } | config
    (folder / "config.json").write_text(json.dumps(data))
    tensors = tensors_of(model)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    places = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(tensors.items())[shard::shards])
        save_file(part, folder / name)
        places |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def logits(model: LlamaModel) -> torch.Tensor:
    pool = model.new_pool(4)
    return model.forward([Span(list(range(20)), 0, pool.allocate(2))], pool)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_holds_the_same_model(small: LlamaModel, tmp_path: Path, shards: int) -> None:
    model = load_model(write(small, tmp_path, shards))
    assert torch.equal(logits(model), logits(small))
    assert model.fingerprint == small.fingerprint
    assert model.config.name == tmp_path.name
    half = load_model(tmp_path, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert half.fingerprint != model.fingerprint


def test_missing_pieces_are_named(small: LlamaModel, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="nowhere does not exist"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(EngineError, match=r"config\.json: cannot be read"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineError, match="is not JSON"):
        load_model(tmp_path)
    write(small, tmp_path, shards=2)
    shard = tmp_path / "model-00002-of-00002.safetensors"
    saved = shard.read_bytes()
    shard.unlink()
    with pytest.raises(EngineError, match="shard model-00002-of-00002"):
        load_model(tmp_path)
    shard.write_bytes(saved[: len(saved) // 2])
    with pytest.raises(EngineError, match="not a whole safetensors file"):
        load_model(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    shard.write_bytes(saved)
    places = json.loads(index.read_text())["weight_map"]
    del places["model.layers.1.mlp.up_proj.weight"]
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(EngineError, match=r"no tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load_model(tmp_path)
    index.unlink()
    with pytest.raises(EngineError, match=r"neither model\.safetensors nor"):
        load_model(tmp_path)


def test_a_shape_that_contradicts_the_config_is_refused(small: LlamaModel, tmp_path: Path) -> None:
    write(small, tmp_path, intermediate_size=47)
    with pytest.raises(EngineError, match=r"\[48, 32\], config\.json asks for \[47, 32\]"):
        load_model(tmp_path)


def test_an_index_without_a_map_or_with_a_wrong_place_is_refused(
    small: LlamaModel, tmp_path: Path
) -> None:
    write(small, tmp_path, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    places["model.norm.weight"] = (
        "model-00001-of-00002.safetensors"
        if places["model.norm.weight"].startswith("model-00002")
        else "model-00002-of-00002.safetensors"
    )
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(EngineError, match=r"'model\.norm\.weight' cannot be read"):
        load_model(tmp_path)
    index.write_text("{}")
    with pytest.raises(EngineError, match="weight_map"):
        load_model(tmp_path)


def test_geokv_tiny_is_made_in_memory() -> None:
    model = load_model("geokv-tiny")
    assert model.config.max_tokens == 16_384
    assert model.config.kv_bytes_per_token() == 1024
    assert model.config.heads > model.config.kv_heads
