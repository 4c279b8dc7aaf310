"""A model by name or folder."""

from __future__ import annotations

from pathlib import Path

import torch

from geokv.engine.config import ModelConfig
from geokv.engine.model import LlamaModel
from geokv.engine.tiny import TINY, make_tiny
from geokv.engine.weights import load_folder, read_config


def model_config(name_or_folder: str | Path) -> ModelConfig:
    """The shape of a model, without its weights.

    Raises:
        EngineError: as ``load_model``, for the folder and its ``config.json``.
    """
    if str(name_or_folder) == TINY.name:
        return TINY
    return read_config(Path(name_or_folder).expanduser())


def load_model(
    name_or_folder: str | Path, seed: int = 0, dtype: torch.dtype = torch.float32
) -> LlamaModel:
    """``geokv-tiny`` (random weights from ``seed``) or a checkpoint folder.

    Raises:
        EngineError: the folder, one of its files or a tensor is missing or unusable.
    """
    if str(name_or_folder) == TINY.name:
        return make_tiny(seed, dtype)
    return load_folder(Path(name_or_folder).expanduser(), dtype)
