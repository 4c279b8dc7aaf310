"""Models small enough that a test computes hundreds of steps in a second."""

from __future__ import annotations

import pytest
import torch

from geokv.engine.config import ModelConfig
from geokv.engine.model import LlamaModel
from geokv.engine.tiny import make_tiny, random_model

SMALL = ModelConfig(
    name="small",
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=8,
    max_tokens=256,
)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small() -> LlamaModel:
    return random_model(SMALL, seed=3)


@pytest.fixture(scope="session")
def tiny() -> LlamaModel:
    return make_tiny()
