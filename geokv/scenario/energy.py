"""Constants of the energy proxy, each with its source and the range it is known in.

A scenario overrides any of them with a plain number. Nothing here is measured by a
run: the result is a proxy, and every table that shows it says so.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from geokv.config import Strict


class Constant(Strict):
    """A number somebody published, or the scenario's own."""

    value: float = Field(ge=0)
    low: float = Field(ge=0)
    high: float = Field(ge=0)
    source: str

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, data: Any) -> Any:
        if isinstance(data, int | float) and not isinstance(data, bool):
            return {"value": data, "low": data, "high": data, "source": "set by the scenario"}
        return data

    @model_validator(mode="after")
    def _ordered(self) -> Constant:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"must lie in its range {self.low:g}..{self.high:g}")
        return self


class GpuWatts(Strict):
    """Board power by phase. Unset: what the GPU profile says, else ``GPU_DEFAULTS``."""

    idle_w: Constant | None = None
    prefill_w: Constant | None = None
    decode_w: Constant | None = None


GPU_DEFAULTS = {
    "idle_w": Constant(value=70, low=60, high=120, source="H100 idle, recalled, not published"),
    "prefill_w": Constant(
        value=700, low=350, high=700, source="board limit of H100 SXM5 (PCIe: 350 W)"
    ),
    "decode_w": Constant(
        value=300, low=137, high=300, source="decode on H200, four attention designs"
    ),
}


class LinkEnergy(Strict):
    end_w: Constant = Constant(
        value=19,
        low=15,
        high=60,
        source="400ZR pluggable: OIF target 15 W, shipping 19 W; 60 W on a transponder slot",
    )
    """Watts of one lit end. A link has two, and they draw whether bits pass or not."""
    transfer_pj_per_bit: Constant = Constant(
        value=150,
        low=125,
        high=175,
        source="NIC 20-25 W and switch port 5-10 W at 400 Gb/s, both ends; recalled, derived",
    )
    """Marginal energy of a bit moved: NICs, switch ports and memory copies of both ends."""


class Energy(Strict):
    gpu: GpuWatts = GpuWatts()
    link: LinkEnergy = LinkEnergy()
