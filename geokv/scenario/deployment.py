"""What is deployed at every site, and what it stands for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.units import Size

PROFILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._-]*$"


class SiteSizes(Strict):
    """What one site has instead of what all have; unset is what all have."""

    device_bytes: Annotated[Size, Field(gt=0)] | None = None
    dram_bytes: Annotated[Size, Field(gt=0)] | None = None
    disk_bytes: Annotated[Size, Field(ge=0)] | None = None


class Deployment(Strict):
    """One worker per site.

    ``device_bytes`` and ``dram_bytes`` are those of the deployment the run stands
    for, not divided by ``byte_scale``: 40 GiB of an H100 hold 40 GiB of its KV.
    """

    model: str = "geokv-tiny"
    """A built-in name, or the path of a folder with ``config.json`` and safetensors."""
    stands_for: Annotated[str, Field(pattern=PROFILE_NAME)] = "llama-3.1-8b@h100-sxm"
    """``model@device``: the GPU profile whose times, KV bytes and watts are charged."""
    compute: Literal["charged", "real"] = "charged"
    content: Literal["model", "synthetic"] = "model"
    """``synthetic`` runs no model: KV bytes and tokens are derived from the prompt."""
    max_tokens: Annotated[int, Field(ge=1, le=4_194_304)] | None = None
    """Longest context of synthetic content; that of ``model`` when unset."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the model that runs, its weights and its KV."""
    byte_scale: Annotated[int, Field(ge=1, le=1024)] = 4
    """S: link rates and wire bytes are divided by it, times are not; 1 is full size."""
    block_tokens: Annotated[int, Field(ge=1, le=1024)] = 16
    chunk_tokens: Annotated[int, Field(ge=1, le=65536)] = 256
    layer_groups: Annotated[int, Field(ge=1, le=256)] = 1
    """A chunk's layers travel in so many parts, each with its own checksum."""
    max_batch_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Tokens of one step, prefill chunks and decodes together; the GPU profile's when unset."""
    max_running: Annotated[int, Field(ge=1, le=65536)] = 256
    """Sequences that are computed side by side."""
    max_waiting: Annotated[int, Field(ge=0, le=1_048_576)] = 1024
    """Requests that wait for a place; more are refused with 429."""
    order: Literal["fcfs", "longest-prefix"] = "fcfs"
    """Who of those that wait goes next."""
    device_bytes: Annotated[Size, Field(gt=0)] = 40 * 2**30
    dram_bytes: Annotated[Size, Field(gt=0)] = 64 * 2**30
    disk_bytes: Annotated[Size, Field(ge=0)] = 0
    """0 is no disk."""
    sites: dict[str, SiteSizes] = Field(default_factory=dict)
    """Site → sizes of its own."""

    def size(self, name: str, site: str) -> int:
        """``device_bytes``, ``dram_bytes`` or ``disk_bytes`` of a site."""
        own: int | None = getattr(self.sites.get(site), name, None)
        all_have: int = getattr(self, name)
        return all_have if own is None else own
