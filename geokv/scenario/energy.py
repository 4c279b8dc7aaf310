"""Constants of the energy proxy, each with its source and the range it is known in.

A scenario overrides any of them with a plain number. Nothing here is measured by a
run: the result is a proxy, and every table that shows it says so.

Constants that are left out are not written into a resolved scenario: what is published may
be put right without changing what a run of yesterday was asked to do.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from geokv.config import Strict

HOURS = 24

Grade = Literal["constants", "cpu", "nvml"]
"""What stands behind the joules of a run: published watts times measured phases; what processors
drew or how long they worked; what the GPU's own meter said in each phase."""


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
    """Power of all boards of a site by phase. Unset: what the GPU profile says, else
    ``GPU_DEFAULTS`` times its GPUs."""

    idle_w: Constant | None = None
    prefill_w: Constant | None = None
    decode_w: Constant | None = None


GPU_DEFAULTS = {
    "idle_w": Constant(
        value=70,
        low=60,
        high=120,
        source="of an H100 no published figure was found; an H200 with nvidia-smi: 73.7 W "
        "(conservemode.com, case studies) and 80.3 W (ALICE GPU Energy Benchmark)",
    ),
    "prefill_w": Constant(
        value=700, low=350, high=700, source="board limit of H100 SXM5 (PCIe: 350 W)"
    ),
    "decode_w": Constant(
        value=300, low=137, high=300, source="decode on H200, four attention designs"
    ),
}


class LinkEnergy(Strict):
    """What a lit wavelength takes, in watts and pJ per bit."""

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
        source="derived from customary figures, for which no source was found: NIC 20-25 W and "
        "switch port 5-10 W at 400 Gb/s, both ends",
    )
    """Marginal energy of a bit moved: NICs, switch ports and memory copies of both ends."""
    switch_w: Constant | None = None
    """Watts of a switch port at one end that is on for this link alone."""


class HostWatts(Strict):
    """What stands around the GPUs of a site."""

    base_w: Constant | None = None
    """CPU, memory, NICs and fans of a server while a request is served, per GPU: a profile of
    several has it that many times."""
    core_w: Constant | None = None
    """One hardware thread at work; for grade ``cpu`` where no meter of the processor is read."""


DEFAULTS = {
    "switch_w": Constant(
        value=0,
        low=0,
        high=10,
        source="0: a port's 5-10 W are in transfer_pj_per_bit; up to 10 W where it serves this "
        "link alone",
    ),
    "host_w": Constant(
        value=70,
        low=70,
        high=575,
        source="about 10 % on top of the boards for CPU and NIC (estimate for 4 H100); at most "
        "575 W a GPU: DGX H100, 10.2 kW for eight boards of 700 W (data sheet)",
    ),
    "core_w": Constant(
        value=3.8,
        low=1.64,
        high=5.99,
        source="Cloud Carbon Footprint's coefficients, a thread at full load: Cascade Lake 3.80 W, "
        "EPYC 2nd generation 1.64 W, Haswell 5.99 W",
    ),
    "pue": Constant(
        value=1.5,
        low=1.1,
        high=1.59,
        source="small sites: no better than the industry's average of 1.55-1.59 (Uptime Institute, "
        "2020-2023); hyperscale 1.1-1.2",
    ),
    "carbon_intensity_g_per_kwh": Constant(
        value=481,
        low=30,
        high=713,
        source="generation in 2023: world 481, Norway 30, India 713 gCO2e/kWh (Ember, July 2024)",
    ),
}
"""What is used where neither the scenario nor a profile says."""

PerHour = Annotated[list[float], Field(min_length=HOURS, max_length=HOURS)]
"""A value for each hour of the day, UTC, from 00:00 on."""


class SitePower(Strict):
    """Where a site has its power from."""

    carbon_intensity_g_per_kwh: Annotated[float, Field(ge=0)] | PerHour | None = None
    """Grams of CO2 equivalent in a kWh: one number, or one of each hour."""
    price_per_kwh: float | PerHour | None = None
    """In any currency, the same at all sites; may be negative."""
    pue: Annotated[float, Field(ge=1)] | None = None
    source: str
    """Who says so."""

    def by_hour(self, what: Literal["carbon_intensity_g_per_kwh", "price_per_kwh"]) -> list[float]:
        """24 values; empty when it is not set."""
        value = getattr(self, what)
        if value is None:
            return []
        return list(value) if isinstance(value, list) else [float(value)] * HOURS


class Energy(Strict):
    """Every constant of the power proxy; what is not set has its default, source and range."""

    gpu: GpuWatts = GpuWatts()
    link: LinkEnergy = LinkEnergy()
    host: HostWatts | None = None
    pue: Constant | None = None
    """Power usage effectiveness: what a site draws over what its machines draw; of sites that say
    nothing of their own."""
    carbon_intensity_g_per_kwh: Constant | None = None
    """Of sites that say nothing of their own."""
    grade: Grade | None = None
    """Unset: the best that the run's clock and the machine can give."""
    sites: dict[str, SitePower] | None = None
    """Site → its power: what its joules and grams are counted with, and for the question which
    site should serve at which hour."""
