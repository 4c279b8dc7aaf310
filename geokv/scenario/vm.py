"""The embedded VM a run may use."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from geokv.config import Strict
from geokv.units import Seconds, Size, show_size

LEAST_MEMORY_BYTES = 1 * 2**30


def _enough(memory_bytes: int) -> int:
    if memory_bytes < LEAST_MEMORY_BYTES:
        raise ValueError(
            f"must be ≥ {show_size(LEAST_MEMORY_BYTES)} (the sites' interpreters and KV pools "
            f"live there), got {show_size(memory_bytes)}"
        )
    return memory_bytes


class VmSettings(Strict):
    """The VMs that a run is made in."""

    memory: Annotated[Size, AfterValidator(_enough)] = 6 * 2**30
    jobs: Annotated[int, Field(ge=1, le=256)] = 2
    """VMs that share the cells of one run."""
    watchdog: Annotated[Seconds, Field(gt=0)] = 120.0
    """Real seconds without progress after which a VM is stopped."""
