"""``geokv-tiny``: a small model with seeded random weights, made in memory.

Its shape is chosen for long prompts on one CPU thread: few layers and narrow attention
(the part that grows with context) and a wide MLP. Its scale is chosen so that greedy
output depends on the whole context: sharp attention (scores spread over a few units),
a residual stream that attention dominates, and an output head apart from the embedding
(a tied one would mostly repeat the last token).
"""

from __future__ import annotations

import numpy as np
import torch

from geokv.engine.config import ModelConfig
from geokv.engine.fingerprint import fingerprint
from geokv.engine.model import LayerWeights, LlamaModel, ModelWeights
from geokv.engine.weights import converted, named

TINY = ModelConfig(
    name="geokv-tiny",
    vocab_size=264,
    hidden_size=256,
    intermediate_size=2304,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=32,
    max_tokens=16_384,
    rope_theta=500_000.0,
)

#: Standard deviation of an attention score before softmax.
_SCORE_SPREAD = 2.5
#: Size of a layer's attention output against its input.
_ATTENTION_GAIN = 4.0
#: Standard deviation of a logit.
_LOGIT_SPREAD = 4.0


def make_tiny(seed: int = 0, dtype: torch.dtype = torch.float32) -> LlamaModel:
    """Build the model; equal seeds give equal weights and fingerprints on every machine."""
    return random_model(TINY, seed, dtype)


def random_model(
    config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32
) -> LlamaModel:
    """A model of any shape (without biases and QK-norm) with the scale described above."""
    random = np.random.Generator(np.random.PCG64(seed))
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, cached = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def matrix(rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        """``[rows, columns]`` that maps unit-variance input to variance ``gain²``."""
        values = random.standard_normal((rows, columns), dtype=np.float32)
        values *= np.float32(gain / columns**0.5)
        return torch.from_numpy(values)

    def ones() -> torch.Tensor:
        return torch.ones(hidden)

    sharp = _SCORE_SPREAD**0.5
    layers = tuple(
        LayerWeights(
            input_norm=ones(),
            query=matrix(queries, hidden, sharp),
            key=matrix(cached, hidden, sharp),
            value=matrix(cached, hidden),
            out=matrix(hidden, queries, _ATTENTION_GAIN),
            post_norm=ones(),
            gate=matrix(inner, hidden, 2.0),
            up=matrix(inner, hidden),
            down=matrix(hidden, inner),
        )
        for _ in range(config.layers)
    )
    weights = ModelWeights(
        embedding=matrix(config.vocab_size, hidden, hidden**0.5),
        layers=layers,
        norm=ones(),
        head=matrix(config.vocab_size, hidden, _LOGIT_SPREAD),
    )
    name = fingerprint(config, named(weights))
    return LlamaModel(config, converted(weights, lambda tensor: tensor.to(dtype)), name)
