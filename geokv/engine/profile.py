"""How long a real deployment computes, and at what power: GPU profiles by name.

A profile is a model on a device: ``llama-3.1-8b@h100-sxm``, or on several that share its
layers, ``llama-3.1-70b-tp4@h100-sxm``. Where the pair was measured it is a file whose
constants ``geokv.engine.fit`` derives from public measurements; elsewhere a roofline of the
device's data sheet and the model's shape. Each carries its sources and its error.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from geokv.config import load_yaml, validate
from geokv.engine.profile_cost import CopyCost, FitError, GpuProfile, Watts
from geokv.engine.profile_forms import Attention, Curve, WaveCost
from geokv.engine.profile_parts import PROFILES, Device, ModelShape, names, part, profile_name
from geokv.engine.profile_roofline import compose, fits
from geokv.errors import EngineError

__all__ = [
    "Attention",
    "CopyCost",
    "Curve",
    "FitError",
    "GpuProfile",
    "Watts",
    "WaveCost",
    "known_profiles",
    "load_profile",
    "parts_of",
]


def _pairs() -> dict[str, tuple[str, int, str]]:
    """Every name, and the model, GPUs and device it says."""
    found = {}
    for model in names("models"):
        shape = part(ModelShape, model)
        for device in names("devices"):
            for ways in shape.tensor_parallel:
                if fits(shape, part(Device, device), ways):
                    found[profile_name(model, ways, device)] = (model, ways, device)
    return found


def known_profiles() -> list[str]:
    """Names :func:`load_profile` takes."""
    return sorted(_pairs())


def parts_of(name: str) -> tuple[ModelShape, int, Device] | None:
    """Model, number of GPUs and device that a name says; None for a profile of a file."""
    pair = _pairs().get(name)
    return (part(ModelShape, pair[0]), pair[1], part(Device, pair[2])) if pair else None


def load_profile(name: str) -> GpuProfile:
    """A profile of this package, or of a YAML file when ``name`` ends in ``.yaml``.

    Raises:
        EngineError: no such profile.
        ConfigError: the file is not a profile.
    """
    if name.endswith(".yaml"):
        path = Path(name)
        return validate(GpuProfile, load_yaml(path), str(path))
    if name in names("fitted"):
        with resources.as_file(PROFILES / "fitted" / f"{name}.yaml") as path:
            return validate(GpuProfile, load_yaml(path), path.name)
    pairs = _pairs()
    if name not in pairs:
        raise EngineError(
            f"unknown GPU profile {name!r}",
            f"a model@device of: {', '.join(sorted(pairs))}",
        )
    return compose(*pairs[name])
