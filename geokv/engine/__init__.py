"""One worker: model, paged pool, prefix tree, sequences, compute, GPU profiles.

Names are resolved on first use, so that reading a GPU profile does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geokv.engine.compute import ChargedCompute, Compute, RealCompute, StepLoad
    from geokv.engine.config import ModelConfig
    from geokv.engine.engine import Engine
    from geokv.engine.generation import TokenEvent, TokenLogprob
    from geokv.engine.load import load_model
    from geokv.engine.loop import EngineLoop, LoopStats
    from geokv.engine.model import LlamaModel
    from geokv.engine.pool import BlockPool
    from geokv.engine.prefix import PrefixNode, PrefixTree
    from geokv.engine.profile import GpuProfile, load_profile
    from geokv.engine.request import Prompt, Request
    from geokv.engine.room import EngineStats
    from geokv.engine.sampling import SamplingParams
    from geokv.engine.scheduler import SchedulerSettings
    from geokv.engine.sequence import Sequence, Slice
    from geokv.engine.span import Span
    from geokv.engine.tokenizer import Tokenizer, load_tokenizer

_HOMES = {
    "ChargedCompute": "compute",
    "Compute": "compute",
    "RealCompute": "compute",
    "StepLoad": "compute",
    "ModelConfig": "config",
    "Engine": "engine",
    "EngineStats": "room",
    "TokenEvent": "generation",
    "TokenLogprob": "generation",
    "load_model": "load",
    "EngineLoop": "loop",
    "LoopStats": "loop",
    "LlamaModel": "model",
    "Span": "span",
    "BlockPool": "pool",
    "PrefixNode": "prefix",
    "PrefixTree": "prefix",
    "GpuProfile": "profile",
    "load_profile": "profile",
    "Prompt": "request",
    "Request": "request",
    "SamplingParams": "sampling",
    "SchedulerSettings": "scheduler",
    "Sequence": "sequence",
    "Slice": "sequence",
    "Tokenizer": "tokenizer",
    "load_tokenizer": "tokenizer",
}

__all__ = [
    "BlockPool",
    "ChargedCompute",
    "Compute",
    "Engine",
    "EngineLoop",
    "EngineStats",
    "GpuProfile",
    "LlamaModel",
    "LoopStats",
    "ModelConfig",
    "PrefixNode",
    "PrefixTree",
    "Prompt",
    "RealCompute",
    "Request",
    "SamplingParams",
    "SchedulerSettings",
    "Sequence",
    "Slice",
    "Span",
    "StepLoad",
    "TokenEvent",
    "TokenLogprob",
    "Tokenizer",
    "load_model",
    "load_profile",
    "load_tokenizer",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
