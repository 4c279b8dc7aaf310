"""What a request draws at the meter of its site: machines, what stands around them, cooling.

    E_machines = E_gpu + E_host + E_optics + E_switches + E_transfer
    E          = PUE · E_machines

    E_host     = P_host · T                     CPU, memory, NICs and fans, per GPU
    E_switches = 2 ends · P_switch · T · links  ports that are on for this link alone
    E_gpu, E_optics, E_transfer                 as in ``request.py``

Emissions follow the Software Carbon Intensity specification (ISO/IEC 21031:2024),
SCI = (E·I + M) per R, with one request as R. M, what making the hardware emitted, is not
counted: no published figure per lit wavelength and hour was found.
"""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.energy.constants import Constants
from geokv.measure.energy.request import ENDS_PER_LINK, Phases, joules

J_PER_KWH = 3_600_000


@dataclass(frozen=True)
class Account:
    """Joules of one request, before PUE by part; ``energy_j`` is what its site's meter sees."""

    gpu_idle_j: float
    """What the GPU would have drawn in that time anyway."""
    gpu_prefill_j: float
    """On top of idle."""
    gpu_decode_j: float
    """On top of idle."""
    host_j: float
    optics_j: float
    switch_j: float
    transfer_j: float
    pue: float

    @property
    def gpu_j(self) -> float:
        return self.gpu_idle_j + self.gpu_prefill_j + self.gpu_decode_j

    @property
    def at_the_server_j(self) -> float:
        """Where the request is served."""
        return self.gpu_j + self.host_j

    @property
    def on_the_link_j(self) -> float:
        """At both ends of the link, one half each."""
        return self.optics_j + self.switch_j + self.transfer_j

    @property
    def machines_j(self) -> float:
        return self.at_the_server_j + self.on_the_link_j

    @property
    def energy_j(self) -> float:
        return self.pue * self.machines_j

    @property
    def energy_consumed_kwh(self) -> float:
        return self.energy_j / J_PER_KWH

    @property
    def marginal_j(self) -> float:
        """What one request more adds where GPUs, hosts and optics are on in any case."""
        return self.pue * (self.gpu_prefill_j + self.gpu_decode_j + self.transfer_j)

    def emissions_g(self, carbon_intensity_g_per_kwh: float) -> float:
        """Grams of CO2 equivalent, M left out."""
        return self.energy_consumed_kwh * carbon_intensity_g_per_kwh


def account(phases: Phases, numbers: Constants, pue: float | None = None) -> Account:
    """The account of one request, or of the mean of several.

    Args:
        pue: a site's own; the constants' where None.
    """
    parts = joules(phases, numbers)
    idle_w = numbers.idle_w.value
    lit_s = phases.total_s * phases.links if phases.needs_link else 0.0
    return Account(
        gpu_idle_j=idle_w * phases.total_s,
        gpu_prefill_j=(numbers.prefill_w.value - idle_w) * phases.prefill_s,
        gpu_decode_j=(numbers.decode_w.value - idle_w) * phases.decode_s,
        host_j=numbers.host_w.value * phases.total_s,
        optics_j=parts.optics_j,
        switch_j=ENDS_PER_LINK * numbers.switch_w.value * lit_s,
        transfer_j=parts.transfer_j,
        pue=numbers.pue.value if pue is None else pue,
    )


def lit_w(numbers: Constants, links: int) -> float:
    """Watts that lit links draw all day, PUE included, whether anybody fetches or not."""
    ends_w = numbers.end_w.value + numbers.switch_w.value
    return numbers.pue.value * ENDS_PER_LINK * ends_w * links
