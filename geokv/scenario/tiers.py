"""What lies below the device: how chunks go down, come up and make room."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geokv import foreign
from geokv.config import Strict
from geokv.units import Fraction, Rate, Seconds

OURS = ("lru", "fifo", "lfu", "s3fifo")
"""Eviction policies that come with geokv."""


def _known(name: str) -> str:
    return foreign.well_formed(name, OURS, foreign.EVICTION)


Policy = Annotated[str, AfterValidator(_known)]
"""The name of an eviction policy, or ``module:Class`` of one of your own."""


class DramSettings(Strict):
    """The tier in host memory."""

    policy: Policy = "lru"
    """Who makes room."""


class DiskSettings(Strict):
    """Of ``deployment.disk_bytes``; constants are those of a data-centre NVMe drive."""

    policy: Policy = "lru"
    queue_chunks: Annotated[int, Field(ge=1, le=1024)] = 8
    """Chunks on their way down; when it is full a chunk that must go is lost, and counted."""
    sync: bool = False
    """fsync every entry. Without it a kill loses nothing, a power cut loses entries."""
    retry: Annotated[Seconds, Field(gt=0, le=3600)] = 1.0
    """How long a failing disk is left alone."""
    read: Annotated[Rate, Field(gt=0)] = 52_000_000_000
    write: Annotated[Rate, Field(gt=0)] = 28_000_000_000
    read_latency: Annotated[Seconds, Field(ge=0, le=10)] = 85e-6
    write_latency: Annotated[Seconds, Field(ge=0, le=10)] = 20e-6


class Tiers(Strict):
    """How chunks go between device, host memory and disk."""

    write: Literal["write-back", "write-through", "hot-only"] = "write-back"
    """When chunks go down to the disk: on eviction, at once, or when they are used again."""
    publish: Literal["all", "hot"] = "all"
    """Which chunks the directory hears of."""
    quota: Annotated[Fraction, Field(gt=0, le=1)] | None = None
    """Share of each tier that one tenant may have; whoever has it makes room for himself."""
    dram: DramSettings = Field(default_factory=DramSettings)
    disk: DiskSettings = Field(default_factory=DiskSettings)
