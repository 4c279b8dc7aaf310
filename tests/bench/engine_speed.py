"""Tokens a second of the whole engine and of transformers (sdpa) on the same weights.

The shape is SmolLM2-135M's with random weights: what is computed does not depend on them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import transformers
from engine_line import Line

from geokv.engine import (
    Engine,
    EngineLoop,
    LlamaModel,
    ModelConfig,
    Prompt,
    RealCompute,
    SamplingParams,
    SchedulerSettings,
    Span,
)
from geokv.engine.tiny import random_model
from geokv.engine.weights import named

SHAPE = ModelConfig(
    name="135M",
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    max_tokens=8192,
    rope_theta=100_000.0,
    tied_embeddings=True,
)
PREFILL_TOKENS = (512, 2048)
CONCURRENT = 8
CONTEXT_TOKENS = 256
ANSWER_TOKENS = 16
ROUNDS = 2
PREFILL_BAR = 0.9
DECODE_BAR = 2.5


def make_model(dtype: torch.dtype) -> LlamaModel:
    """The shape with random weights, its head tied as SmolLM2's is."""
    apart = random_model(replace(SHAPE, tied_embeddings=False), 0, dtype)
    tied = replace(apart.weights, head=apart.weights.embedding)
    return LlamaModel(SHAPE, tied, apart.fingerprint)


def measure_speed(dtype: torch.dtype) -> Iterator[Line]:
    """Prefill and decode."""
    model = make_model(dtype)
    yield from asyncio.run(_compare(model, _transformers(model)))


async def _compare(model: LlamaModel, theirs: Any) -> list[Line]:
    # Room for the longest prompt or the eight answers.
    engine = Engine(model, 256, RealCompute())
    loop = EngineLoop(engine, SchedulerSettings(max_batch_tokens=max(PREFILL_TOKENS)))
    draw = random.Random(0)
    name = str(model.dtype).removeprefix("torch.")
    lines = []

    def prompt(tokens: int) -> list[int]:
        return draw.choices(range(SHAPE.vocab_size), k=tokens)

    for tokens in PREFILL_TOKENS:
        pairs = [
            (await _our_prefill(loop, text), _their_prefill(theirs, text))
            for text in [prompt(tokens) for _ in range(ROUNDS)]
        ]
        lines.append(_line(f"{name} prefill of {tokens}", pairs, tokens, PREFILL_BAR))
    pairs = []
    for _ in range(ROUNDS):
        texts = [prompt(CONTEXT_TOKENS) for _ in range(CONCURRENT)]
        pairs.append((await _our_decode(loop, texts), _their_decode(theirs, texts[0])))
    lines.append(_line(f"{name} decode, {CONCURRENT} at once to 1", pairs, 1, DECODE_BAR))
    alone = [
        (await _our_decode(loop, [text]), _their_decode(theirs, text))
        for text in [prompt(CONTEXT_TOKENS) for _ in range(ROUNDS)]
    ]
    lines.append(_line(f"{name} decode, 1 to 1", alone, 1, None))
    await loop.aclose()
    await engine.compute.aclose()
    return lines


def _line(what: str, pairs: list[tuple[float, float]], tokens: int, bar: float | None) -> Line:
    """From seconds (ours, theirs) per ``tokens``: the best of each."""
    ours, theirs = (min(side) for side in zip(*pairs, strict=True))
    return Line(
        what, f"{tokens / ours:.0f} tok/s", f"{tokens / theirs:.0f} tok/s", theirs / ours, bar
    )


def _prompt(tokens: list[int], answer: int) -> Prompt:
    return Prompt(tokens, b"bench", SamplingParams(max_tokens=answer), reuse=False)


async def _our_prefill(loop: EngineLoop, text: list[int]) -> float:
    """Seconds from the request to its first token."""
    start = time.perf_counter()
    async for _ in loop.submit(_prompt(text, 1)):
        pass
    return time.perf_counter() - start


async def _our_decode(loop: EngineLoop, texts: list[list[int]]) -> float:
    """Seconds per token while all of ``texts`` are being answered."""
    stamps: list[list[float]] = []

    async def answer(text: list[int]) -> None:
        mine: list[float] = []
        async for _ in loop.submit(_prompt(text, ANSWER_TOKENS)):
            mine.append(time.perf_counter())
        stamps.append(mine)

    await asyncio.gather(*(answer(text) for text in texts))
    start = max(mine[0] for mine in stamps)
    end = min(mine[-1] for mine in stamps)
    return (end - start) / sum(start < at <= end for mine in stamps for at in mine)


@torch.inference_mode()
def _their_prefill(theirs: Any, text: list[int]) -> float:
    ids = torch.tensor([text])
    start = time.perf_counter()
    theirs(ids, use_cache=True, logits_to_keep=1).logits[0, -1].argmax()
    return time.perf_counter() - start


@torch.inference_mode()
def _their_decode(theirs: Any, text: list[int]) -> float:
    cache = transformers.DynamicCache()
    logits = theirs(torch.tensor([text]), past_key_values=cache, logits_to_keep=1).logits
    start = time.perf_counter()
    for _ in range(ANSWER_TOKENS - 1):
        logits = theirs(logits[:, -1:].argmax(-1), past_key_values=cache).logits
    return (time.perf_counter() - start) / (ANSWER_TOKENS - 1)


def _transformers(model: LlamaModel) -> Any:
    """Their model on our very tensors."""
    shape = model.config
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        rms_norm_eps=shape.rms_norm_eps,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        dtype=model.dtype,
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, tensor in _their_names(model):
            theirs.get_parameter(name).data = tensor
    theirs.tie_weights()
    text = random.Random(1).choices(range(shape.vocab_size), k=16)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([text])).logits[0, -1].float()
    pool = model.new_pool(1)
    ours = model.forward([Span(text, 0, [0])], pool)[0]
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.1
    if (ours - wanted).abs().max() > tolerance * wanted.abs().max():
        raise SystemExit("transformers computes something else: the comparison would be void")
    return theirs


_NAMES: dict[str, str] = {
    "input_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "out": "self_attn.o_proj",
    "post_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def _their_names(model: LlamaModel) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in named(model.weights):
        if name == "embedding":
            yield "model.embed_tokens.weight", tensor
        elif name == "norm":
            yield "model.norm.weight", tensor
        else:
            _, index, part = name.split(".")
            yield f"model.layers.{index}.{_NAMES[part]}.weight", tensor
