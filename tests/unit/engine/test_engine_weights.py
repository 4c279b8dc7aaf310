from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from geokv.engine import LlamaModel, Span, load_model
from geokv.engine.load import find_device
from geokv.engine.model import LayerWeights
from geokv.engine.tiny import random_model
from geokv.errors import EngineError
from geokv.paths import CHECKOUT

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
    # Its KV is told apart by its layout, not by whose it is.
    assert half.fingerprint == model.fingerprint


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


def spoil(path: Path, name: str, value: float) -> None:
    tensors = load_file(path)
    tensors[name].view(-1)[-1] = value
    save_file(tensors, path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_weight_that_is_no_number_is_named(
    small: LlamaModel, tmp_path: Path, value: float, dtype: torch.dtype
) -> None:
    path = write(small, tmp_path) / "model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
    load_model(tmp_path)
    spoil(path, "model.layers.2.mlp.down_proj.weight", value)
    with pytest.raises(EngineError, match=r"'model\.layers\.2\.mlp\.down_proj\.weight' holds NaN"):
        load_model(tmp_path)


def test_large_half_precision_weights_are_not_taken_for_infinite(
    small: LlamaModel, tmp_path: Path
) -> None:
    """Their sum is beyond float16's largest number."""
    path = write(small, tmp_path) / "model.safetensors"
    tensors = {name: tensor.half() for name, tensor in load_file(path).items()}
    tensors["lm_head.weight"] = torch.full_like(tensors["lm_head.weight"], 6e4)
    save_file(tensors, path)
    load_model(tmp_path, dtype=torch.float16)


def test_shards_of_another_checkpoint_are_refused(small: LlamaModel, tmp_path: Path) -> None:
    write(small, tmp_path, shards=2)
    extra = tmp_path / "model-00003-of-00003.safetensors"
    extra.write_bytes((tmp_path / "model-00002-of-00002.safetensors").read_bytes())
    with pytest.raises(EngineError, match=r"shard model-00003-of-00003\.safetensors belongs to no"):
        load_model(tmp_path)
    extra.unlink()
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(EngineError, match=r"has both model\.safetensors and"):
        load_model(tmp_path)


def test_truncated_and_empty_files_are_refused(small: LlamaModel, tmp_path: Path) -> None:
    path = write(small, tmp_path) / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(EngineError, match="not a whole safetensors file"):
            load_model(tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"sliding_window": 32}, "sliding-window attention is not supported"),
        ({"partial_rotary_factor": 0.5}, "rotary embedding of 0.5 of a head"),
        ({"quantization_config": {"bits": 4}}, "quantized weights are not read"),
        ({"architectures": ["GPT2LMHeadModel"]}, "unknown architecture GPT2LMHeadModel"),
    ],
)
def test_what_is_not_computed_is_refused(
    small: LlamaModel, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    write(small, tmp_path, **config)
    with pytest.raises(EngineError, match=words):
        load_model(tmp_path)


def test_devices(small: LlamaModel, tmp_path: Path) -> None:
    write(small, tmp_path)
    assert load_model(tmp_path, device="auto").device == find_device("auto")
    assert load_model(tmp_path, device="cpu").device.type == "cpu"
    with pytest.raises(EngineError, match="unknown device 'abacus'"):
        load_model(tmp_path, device="abacus")
    if not torch.cuda.is_available():
        assert find_device("auto").type == "cpu"
        with pytest.raises(EngineError, match="torch sees 0 CUDA devices") as caught:
            load_model("geokv-tiny", device="cuda:1")
        assert "auto" in caught.value.hint


MEASURE = """
import sys, torch
from geokv.engine import load_model
torch.set_num_threads(1)
def own():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
load_model(sys.argv[1])
sizes = [own()]
kept = []
for dtype in (torch.float32, torch.bfloat16):
    kept.append(load_model(sys.argv[1], dtype=dtype))
    sizes.append(own())
print(sizes[1] - sizes[0], sizes[2] - sizes[1])
"""


@pytest.mark.slow
def test_weights_of_the_wanted_dtype_stay_in_the_file(small: LlamaModel, tmp_path: Path) -> None:
    """Mapped pages belong to the file and are shared; only a conversion takes memory."""
    write(random_model(replace(small.config, hidden_size=256, intermediate_size=4096)), tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert size > 30e6
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    mapped, converted = map(int, done.stdout.split())
    assert mapped < 0.1 * size
    assert converted > 0.45 * size


def test_geokv_tiny_is_made_in_memory() -> None:
    model = load_model("geokv-tiny")
    assert model.config.max_tokens == 16_384
    assert model.config.kv_bytes_per_token() == 1024
    assert model.config.heads > model.config.kv_heads
