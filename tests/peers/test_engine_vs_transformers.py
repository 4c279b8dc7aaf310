"""Our model against transformers on tiny random checkpoints of every shape we read."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from geokv.engine import BlockPool, LlamaModel, Span, load_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own deprecations are not ours
    import transformers

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    # Five times the usual spread, or random logits would be too flat to compare.
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
    # Short enough that the scaled, mixed and kept frequencies all occur.
    "original_max_position_embeddings": 64,
}
STEPS = 20


def llama(**extra: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES | extra))


def qwen2(**extra: Any) -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES | extra))


def qwen3(**extra: Any) -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES | extra))


def mistral(**extra: Any) -> Any:
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES | extra))


SHAPES = {
    "llama": lambda: llama(tie_word_embeddings=False),
    "llama-tied": lambda: llama(tie_word_embeddings=True),
    "llama-biases": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama-3.1-rope": lambda: llama(rope_parameters=LLAMA_3_1, head_dim=32),
    "qwen2": qwen2,
    "qwen3": lambda: qwen3(head_dim=16),
    "mistral": lambda: mistral(sliding_window=None),
    "mistral-head-dim": lambda: mistral(sliding_window=None, head_dim=24),
}


@pytest.fixture(params=sorted(SHAPES))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, LlamaModel]:
    """The checkpoint as transformers holds it and as we read it back from its folder."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    theirs = SHAPES[request.param]().eval().float()
    # Fresh models have zero biases and unit norms, which would hide mistakes there, and
    # embeddings so small that every context leads to the same choice.
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.05)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif "embed_tokens" in name:
                parameter.mul_(4)
    shard = "60KB" if request.param == "llama" else "1GB"
    theirs.save_pretrained(tmp_path, max_shard_size=shard)
    if request.param == "llama":
        assert (tmp_path / "model.safetensors.index.json").is_file()
    return theirs, load_model(tmp_path)


class Ours:
    """Our model driven as the engine does: chunked prefill, then a token at a time."""

    def __init__(self, model: LlamaModel) -> None:
        self.model = model
        self.pool: BlockPool = model.new_pool(40, 8)
        self.pool.allocate(3)
        self.table = self.pool.allocate(30)[::-1]
        self.length = 0

    def step(self, tokens: list[int]) -> torch.Tensor:
        logits = self.model.forward([Span(tokens, self.length, self.table)], self.pool)[0]
        self.length += len(tokens)
        return logits


def test_same_logits_and_choice_at_every_step(pair: tuple[Any, LlamaModel]) -> None:
    """The text goes on at random, so that every step is a new context, not a loop."""
    theirs, model = pair
    tokens = random.Random(1).choices(range(160), k=150 + STEPS)
    with torch.no_grad():
        wanted = theirs(torch.tensor([tokens]), use_cache=False).logits[0, 149:]
    ours = Ours(model)
    for start in range(0, 140, 35):
        ours.step(tokens[start : start + 35])
    logits = [ours.step(tokens[140:150])]
    logits += [ours.step([token]) for token in tokens[150:]]
    assert (torch.stack(logits) - wanted).abs().max() < 1e-4
    choices = torch.stack(logits).argmax(-1)
    assert torch.equal(choices, wanted.argmax(-1))
    assert len(set(choices.tolist())) > 5, "choices that never change prove little"


def test_their_greedy_generation_is_ours(pair: tuple[Any, LlamaModel]) -> None:
    theirs, model = pair
    tokens = random.Random(2).choices(range(160), k=60)
    settings = {"max_new_tokens": STEPS, "do_sample": False, "pad_token_id": 0}
    wanted = theirs.generate(torch.tensor([tokens]), **settings)[0, 60:].tolist()
    ours = Ours(model)
    logits = ours.step(tokens)
    chosen = []
    while len(chosen) < STEPS:
        chosen.append(int(logits.argmax()))
        logits = ours.step(chosen[-1:])
    assert chosen == wanted


def test_a_mixed_batch_is_their_batches_of_one(pair: tuple[Any, LlamaModel]) -> None:
    """A chunk of one prompt, the end of another and two decodes, in one forward pass."""
    theirs, model = pair
    draw = random.Random(3)
    texts = [draw.choices(range(160), k=length) for length in (40, 61, 33, 90)]
    pool = model.new_pool(64, 8)
    blocks = draw.sample(range(64), 64)
    tables = [[blocks.pop() for _ in range(12)] for _ in texts]
    starts = [0, 50, 32, 89]
    past = zip(texts, starts, tables, strict=True)
    model.forward([Span(t[:at], 0, table, logits=False) for t, at, table in past if at], pool)
    spans = [Span(t[at:], at, table) for t, at, table in zip(texts, starts, tables, strict=True)]
    ours = model.forward(spans, pool)
    with torch.no_grad():
        wanted = torch.stack([theirs(torch.tensor([text])).logits[0, -1] for text in texts])
    assert (ours - wanted).abs().max() < 1e-4
    assert torch.equal(ours.argmax(-1), wanted.argmax(-1))


def test_bfloat16_is_as_close_to_float32_as_theirs(
    pair: tuple[Any, LlamaModel], tmp_path: Path
) -> None:
    """Rounding differs, so bits do not agree; neither side may stray farther than the other."""
    theirs, _ = pair
    half = Ours(load_model(tmp_path, dtype=torch.bfloat16))
    tokens = random.Random(4).choices(range(160), k=60 + STEPS)
    with torch.no_grad():
        exact = theirs(torch.tensor([tokens])).logits[0, 59:]
        rounded = theirs.bfloat16()(torch.tensor([tokens])).logits[0, 59:].float()
    logits = torch.stack([half.step(tokens[:60]), *(half.step([t]) for t in tokens[60:])])
    ours, allowed = ((side - exact).square().mean().sqrt() for side in (logits, rounded))
    assert 0 < ours < 1.5 * allowed
    # A choice may turn only where the two best are closer than the rounding of both.
    turned = logits.argmax(-1) != exact.argmax(-1)
    best = exact.topk(2).values
    gaps = best[:, 0] - best[:, 1]
    assert (gaps[turned] < 2 * (logits - exact).abs().max()).all()
    assert turned.float().mean() < 0.25


def test_a_sliding_window_checkpoint_is_refused(tmp_path: Path) -> None:
    from geokv.errors import EngineError

    mistral(sliding_window=32).save_pretrained(tmp_path)
    with pytest.raises(EngineError, match="sliding-window"):
        load_model(tmp_path)
