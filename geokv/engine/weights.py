"""Weights from a Hugging Face folder of safetensors, memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from geokv.engine.config import ModelConfig
from geokv.engine.fingerprint import fingerprint
from geokv.engine.model import LayerWeights, LlamaModel, ModelWeights
from geokv.errors import EngineError

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARDS = "model-*-of-*.safetensors"


def load_folder(folder: Path, dtype: torch.dtype = torch.float32) -> LlamaModel:
    """The model of a folder with ``config.json`` and safetensors, one file or sharded.

    Tensors that have ``dtype`` already stay mapped; others are converted in memory. Every
    weight is read once, so that one that is no number is found here and not in an answer.

    Raises:
        EngineError: naming the missing or unusable folder, file or tensor.
    """
    config = read_config(folder)
    with _open(folder) as tensors:
        stored = _build(config, tensors)
        weights = converted(stored, lambda tensor: tensor.to(dtype))
    return LlamaModel(config, weights, fingerprint(config, named(stored)))


def read_config(folder: Path) -> ModelConfig:
    """The shape of a folder's model.

    Raises:
        EngineError: no such folder, or its ``config.json`` is missing or unusable.
    """
    if not folder.is_dir():
        raise EngineError(
            f"model folder {folder} does not exist",
            "give 'geokv-tiny', a name of `geokv model list`, or a folder with config.json "
            "and *.safetensors",
        )
    return ModelConfig.from_hf(read_json(folder / "config.json"), name=folder.resolve().name)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON mapping.

    Raises:
        EngineError: the file is missing, unreadable or not a mapping.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise EngineError(f"{path}: is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise EngineError(f"{path}: must be a mapping")
    return data


class _Tensors:
    """Tensors by name over all files of a checkpoint."""

    def __init__(self, folder: Path, files: dict[str, Any], places: dict[str, str]) -> None:
        self._folder = folder
        self._files = files
        self._places = places

    def get(self, name: str, *shape: int) -> torch.Tensor:
        place = self._places.get(name)
        if place is None:
            raise EngineError(f"{self._folder}: the checkpoint has no tensor {name!r}")
        try:
            tensor: torch.Tensor = self._files[place].get_tensor(name)
        except SafetensorError as error:
            raise EngineError(
                f"{self._folder / place}: {name!r} cannot be read ({error})"
            ) from None
        if tuple(tensor.shape) != shape:
            raise EngineError(
                f"{self._folder / place}: {name!r} is {list(tensor.shape)}, "
                f"config.json asks for {list(shape)}"
            )
        # One NaN or Inf anywhere makes the sum one too; float32, so that a sum of half
        # precision numbers cannot overflow by itself.
        if not tensor.is_floating_point() or not tensor.sum(dtype=torch.float32).isfinite():
            raise EngineError(
                f"{self._folder / place}: {name!r} holds NaN, Inf or no real numbers "
                f"({tensor.dtype})",
                "the checkpoint is damaged or quantized: download it again, or take one in "
                "float32, float16 or bfloat16",
            )
        return tensor


@contextmanager
def _open(folder: Path) -> Iterator[_Tensors]:
    index = folder / _INDEX
    sharded = index.is_file()
    if sharded and (folder / _SINGLE).is_file():
        raise EngineError(
            f"{folder}: has both {_SINGLE} and {_INDEX}", "remove the one that is not the model's"
        )
    if sharded:
        placed = read_json(index).get("weight_map")
        if not isinstance(placed, dict):
            raise EngineError(f"{index}: has no weight_map")
        places = {str(name): str(file) for name, file in placed.items()}
    elif (folder / _SINGLE).is_file():
        places = {}
    else:
        raise EngineError(f"{folder}: has neither {_SINGLE} nor {_INDEX}")
    names = sorted(set(places.values())) if sharded else [_SINGLE]
    extra = sorted({path.name for path in folder.glob(_SHARDS)} - set(names))
    if extra:
        raise EngineError(
            f"{folder}: shard {extra[0]} belongs to no tensor of this checkpoint",
            "two checkpoints are mixed, or the index is an old one; download the folder again",
        )
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for name in names:
            path = folder / name
            if not path.is_file():
                raise EngineError(f"{folder}: shard {name} is missing, {_INDEX} names it")
            try:
                files[name] = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise EngineError(f"{path}: is not a whole safetensors file ({error})") from None
        if not sharded:
            places = dict.fromkeys(files[_SINGLE].keys(), _SINGLE)
        yield _Tensors(folder, files, places)


def converted(
    weights: ModelWeights, change: Callable[[torch.Tensor], torch.Tensor]
) -> ModelWeights:
    """Every tensor changed; one tensor stays one where embedding and head are tied."""
    embedding = change(weights.embedding)
    tied = weights.head is weights.embedding
    return ModelWeights(
        embedding=embedding,
        layers=tuple(
            replace(layer, **{name: change(tensor) for name, tensor in present(layer)})
            for layer in weights.layers
        ),
        norm=change(weights.norm),
        head=embedding if tied else change(weights.head),
    )


def _build(config: ModelConfig, tensors: _Tensors) -> ModelWeights:
    """As they are stored, mapped."""
    hidden, vocab = config.hidden_size, config.vocab_size
    get = tensors.get
    embedding = get("model.embed_tokens.weight", vocab, hidden)
    head = embedding if config.tied_embeddings else get("lm_head.weight", vocab, hidden)
    layers = tuple(_layer(config, get, f"model.layers.{i}.") for i in range(config.layers))
    return ModelWeights(embedding, layers, get("model.norm.weight", hidden), head)


def _layer(config: ModelConfig, get: Any, prefix: str) -> LayerWeights:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, cached = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def optional(wanted: bool, name: str, size: int) -> torch.Tensor | None:
        return get(prefix + name, size) if wanted else None

    return LayerWeights(
        input_norm=get(prefix + "input_layernorm.weight", hidden),
        query=get(prefix + "self_attn.q_proj.weight", queries, hidden),
        key=get(prefix + "self_attn.k_proj.weight", cached, hidden),
        value=get(prefix + "self_attn.v_proj.weight", cached, hidden),
        out=get(prefix + "self_attn.o_proj.weight", hidden, queries),
        post_norm=get(prefix + "post_attention_layernorm.weight", hidden),
        gate=get(prefix + "mlp.gate_proj.weight", inner, hidden),
        up=get(prefix + "mlp.up_proj.weight", inner, hidden),
        down=get(prefix + "mlp.down_proj.weight", hidden, inner),
        query_bias=optional(config.qkv_bias, "self_attn.q_proj.bias", queries),
        key_bias=optional(config.qkv_bias, "self_attn.k_proj.bias", cached),
        value_bias=optional(config.qkv_bias, "self_attn.v_proj.bias", cached),
        out_bias=optional(config.out_bias, "self_attn.o_proj.bias", hidden),
        gate_bias=optional(config.mlp_bias, "mlp.gate_proj.bias", inner),
        up_bias=optional(config.mlp_bias, "mlp.up_proj.bias", inner),
        down_bias=optional(config.mlp_bias, "mlp.down_proj.bias", hidden),
        query_norm=optional(config.qk_norm, "self_attn.q_norm.weight", config.head_dim),
        key_norm=optional(config.qk_norm, "self_attn.k_norm.weight", config.head_dim),
    )


def named(weights: ModelWeights) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor once, in a fixed order, with a stable name."""
    yield "embedding", weights.embedding
    for index, layer in enumerate(weights.layers):
        for name, tensor in present(layer):
            yield f"layers.{index}.{name}", tensor
    yield "norm", weights.norm
    if weights.head is not weights.embedding:
        yield "head", weights.head


def present(layer: LayerWeights) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors a layer has, by field, in a fixed order."""
    for name in LayerWeights.__dataclass_fields__:
        tensor = getattr(layer, name)
        if tensor is not None:
            yield name, tensor
