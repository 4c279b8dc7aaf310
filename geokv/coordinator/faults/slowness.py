"""Making what a site is charged for take longer, and seeing that it does."""

from __future__ import annotations

from typing import Literal

from geokv.clock import now_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.faults.fault import Evidence
from geokv.errors import FaultError


async def make_slow(
    stage: Stage, site: str, part: Literal["gpu", "disk"], factor: float
) -> Evidence:
    """Raises FaultError: the site says that it is as quick as before."""
    control = stage.control(site)
    await control.post("/slow", **{part: factor})
    found = (await control.get("/slow")).get(part)
    if found != factor:
        raise FaultError(f"did not fire: the {part} of site {site} takes {found} times as long")
    return Evidence(
        now_ns(), f"the {part} of site {site} takes {factor:g} times as long", {"factor": factor}
    )
