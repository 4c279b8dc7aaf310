"""Faults of a site: its process, its GPU, its memory, its disk."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geokv.scenario.timeline.event import Event, Lasting, Share, Wait


class SiteKill(Event):
    """``kill -9``: everything of the process is gone at once."""

    fault: Literal["site-kill"]
    site: str
    restart: Wait | Literal["never"] = "never"
    """How long it stays away; it comes back at the same address."""
    keep: Literal["nothing", "disk"] = "nothing"
    """What it finds again."""

    @property
    def heals(self) -> bool:
        return self.restart != "never"

    @property
    def lasts_s(self) -> float | None:
        return None if self.restart == "never" else float(self.restart)


class SiteFreeze(Lasting):
    """SIGSTOP: connections stay open and nothing is answered."""

    fault: Literal["site-freeze"]
    site: str


class SiteRestart(Event):
    """The process is ended in order and started again at once, at the same address."""

    fault: Literal["site-restart"]
    site: str
    how: Literal["empty", "stale"] = "empty"
    """``stale``: it finds its disk, and what it had promised before, again."""


class SlowGpu(Lasting):
    """Every charge of the GPU takes ``factor`` times as long."""

    fault: Literal["slow-gpu"]
    site: str
    factor: Annotated[float, Field(gt=1, le=1000)]


class MemoryPressure(Lasting):
    """The DRAM tier must do with less."""

    fault: Literal["memory-pressure"]
    site: str
    dram_keep: Share
    """What is left of it."""


class DiskFull(Lasting):
    """The disk takes nothing more."""

    fault: Literal["disk-full"]
    site: str


class DiskSlow(Lasting):
    """Every access to the disk takes ``factor`` times as long."""

    fault: Literal["disk-slow"]
    site: str
    factor: Annotated[float, Field(gt=1, le=10_000)]


class BitRot(Event):
    """A bit flips in chunks that were stored whole and verified."""

    fault: Literal["bit-rot"]
    site: str
    tier: Literal["dram", "disk"] = "dram"
    chunks: Annotated[int, Field(ge=1, le=100_000)] = 1


class StoreOutage(Lasting):
    """The site's disk gives errors for reading and writing."""

    fault: Literal["store-outage"]
    site: str
