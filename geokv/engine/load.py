"""A model by name or folder."""

from __future__ import annotations

from pathlib import Path

import torch

from geokv.engine.config import ModelConfig
from geokv.engine.model import LlamaModel
from geokv.engine.models import find, require
from geokv.engine.tiny import TINY, make_tiny
from geokv.engine.weights import converted, load_folder, read_config
from geokv.errors import EngineError


def model_config(name_or_folder: str | Path) -> ModelConfig:
    """The shape of a model, without its weights.

    Raises:
        EngineError: as ``load_model``, for the folder and its ``config.json``.
    """
    if str(name_or_folder) == TINY.name:
        return TINY
    return read_config(model_folder(name_or_folder))


def model_folder(name_or_folder: str | Path) -> Path:
    """Where a model's files lie: a fetched one's folder, or the folder itself.

    Raises:
        EngineError: a model of the catalogue that has not been fetched.
    """
    model = find(str(name_or_folder))
    return require(model) if model else Path(name_or_folder).expanduser()


def load_model(
    name_or_folder: str | Path,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> LlamaModel:
    """``geokv-tiny`` (random weights from ``seed``), a fetched model, or a checkpoint folder.

    Args:
        device: ``cpu``, ``cuda`` (or ``cuda:1``), or ``auto``: CUDA when torch sees one.

    Raises:
        EngineError: the folder, one of its files or a tensor is missing or unusable, the
            model has not been fetched, or there is no such device.
    """
    place = find_device(device)
    if str(name_or_folder) == TINY.name:
        model = make_tiny(seed, dtype)
    else:
        model = load_folder(model_folder(name_or_folder), dtype)
    if place.type == "cpu":
        return model
    weights = converted(model.weights, lambda tensor: tensor.to(place))
    return LlamaModel(model.config, weights, model.fingerprint)


def find_device(name: str) -> torch.device:
    """The device called ``name``.

    Raises:
        EngineError: torch knows no such device, or sees none here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in {"cpu", "cuda"}:
        raise EngineError(f"unknown device {name!r}", "use cpu, cuda, cuda:N or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(
            f"device {name}: torch sees {torch.cuda.device_count()} CUDA devices here",
            "use cpu or auto; CUDA needs a GPU, its driver and a torch built for it",
        )
    return device
