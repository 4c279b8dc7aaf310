"""What is deployed at every site, and what it stands for."""

from __future__ import annotations

from math import gcd
from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.units import Size

Dtype = Literal["float32", "float16", "bfloat16"]
BlockTokens = Annotated[int, Field(ge=1, le=1024)]
ChunkTokens = Annotated[int, Field(ge=1, le=65536)]
Shards = Annotated[int, Field(ge=1, le=256)]
PROFILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._-]*$"


LAID_OUT = ("block_tokens", "chunk_tokens", "dtype", "shards")
"""How the chunks of a site lie; where sites differ they make a mixed fleet."""


class SiteDeployment(Strict):
    """What one site has instead of what all have; unset is what all have."""

    block_tokens: BlockTokens | None = None
    chunk_tokens: ChunkTokens | None = None
    dtype: Dtype | None = None
    shards: Shards | None = None
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
    dtype: Dtype = "float32"
    """Of the model that runs, its weights and its KV."""
    byte_scale: Annotated[int, Field(ge=1, le=1024)] = 4
    """S: link rates and wire bytes are divided by it, times are not; 1 is full size."""
    block_tokens: BlockTokens = 16
    chunk_tokens: ChunkTokens = 256
    key_tokens: BlockTokens | None = None
    """Tokens per link of the key chain, the same at every site; what divides all blocks when
    unset."""
    shards: Shards = 1
    """Tensor-parallel ranks that divide the KV heads: a chunk has one rank's part after the
    other's."""
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
    sites: dict[str, SiteDeployment] = Field(default_factory=dict)
    """Site → what it has of its own."""

    def at(self, site: str) -> Deployment:
        """What ``site`` has: its own, and for the rest what all have."""
        own = self.sites.get(site)
        return self.model_copy(update=own.model_dump(exclude_none=True)) if own else self

    @property
    def exact(self) -> bool:
        """Whether the KV of one prompt is the same bytes wherever and however it is computed:
        derived from the prompt, and laid out alike at every site."""
        alike = {name: getattr(self, name) for name in LAID_OUT}
        return self.content == "synthetic" and all(
            self.laid_out(site) == alike for site in self.sites
        )

    def place(self, name: str, site: str) -> str:
        """Where a site's value is written: ``sites.b.chunk_tokens``, or ``chunk_tokens``."""
        own = getattr(self.sites.get(site), name, None)
        return name if own is None else f"sites.{site}.{name}"

    @property
    def chain_tokens(self) -> int:
        """Tokens per link of the key chain."""
        blocks = [own.block_tokens for own in self.sites.values() if own.block_tokens]
        return self.key_tokens or gcd(self.block_tokens, *blocks)

    def laid_out(self, site: str) -> dict[str, int | str]:
        """How the chunks of ``site`` lie."""
        own = self.at(site)
        return {name: getattr(own, name) for name in LAID_OUT}
