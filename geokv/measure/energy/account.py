"""What a request draws at the meters of its sites: machines, what stands around them, cooling.

    E_server = E_gpu + E_host
    E_link   = E_optics + E_switches + E_transfer
    E        = PUE · E_server + (PUE + PUE of the other end) / 2 · E_link

    E_host     = P_host · T                     CPU, memory, NICs and fans around all its GPUs
    E_switches = 2 ends · P_switch · T · links  ports that are on for this link alone
    E_gpu, E_optics, E_transfer                 as in ``request.py``

Each end pays one half of the link, with its own PUE and its own carbon (``grid.py``). Emissions
follow the Software Carbon Intensity specification (ISO/IEC 21031:2024), SCI = (E·I + M) per R, with
one request as R and E·I summed over both ends. M, what making the hardware emitted, is not counted:
no published figure per lit wavelength and hour was found.
"""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.energy.constants import Constants
from geokv.measure.energy.grid import Ends, of_all_sites
from geokv.measure.energy.request import ENDS_PER_LINK, Phases, gpu_parts, joules

J_PER_KWH = 3_600_000


@dataclass(frozen=True)
class Account:
    """Joules of one request, before PUE by part; ``energy_j`` is what the sites' meters see."""

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
    ends: Ends

    @property
    def gpu_j(self) -> float:
        """All that the GPU drew, idle included."""
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
        """At the server and on the link, before PUE."""
        return self.at_the_server_j + self.on_the_link_j

    @property
    def energy_j(self) -> float:
        """At the sites' meters: each part times the PUE of where it is drawn."""
        return self.ends.here.pue * self.at_the_server_j + self._link_pue * self.on_the_link_j

    @property
    def energy_consumed_kwh(self) -> float:
        """``energy_j`` in kWh, as CodeCarbon names it."""
        return self.energy_j / J_PER_KWH

    @property
    def marginal_j(self) -> float:
        """What one request more adds where GPUs, hosts and optics are on in any case."""
        gpu_j = self.gpu_prefill_j + self.gpu_decode_j
        return self.ends.here.pue * gpu_j + self._link_pue * self.transfer_j

    @property
    def emissions_g(self) -> float:
        """Grams of CO2 equivalent, M left out."""
        here, there = (one.pue * one.carbon_intensity_g_per_kwh / J_PER_KWH for one in self.ends)
        return self.at_the_server_j * here + self.on_the_link_j * (here + there) / 2

    @property
    def _link_pue(self) -> float:
        return sum(one.pue for one in self.ends) / 2


def account(phases: Phases, numbers: Constants, ends: Ends | None = None) -> Account:
    """The account of one request, or of the mean of several.

    Args:
        ends: the power of both sites; the constants' where None.
    """
    parts = joules(phases, numbers)
    idle_j, prefill_j, decode_j = gpu_parts(phases, numbers)
    lit_s = phases.total_s * phases.links if phases.needs_link else 0.0
    return Account(
        gpu_idle_j=idle_j,
        gpu_prefill_j=prefill_j,
        gpu_decode_j=decode_j,
        host_j=numbers.host_w.value * phases.total_s,
        optics_j=parts.optics_j,
        switch_j=ENDS_PER_LINK * numbers.switch_w.value * lit_s,
        transfer_j=parts.transfer_j,
        ends=ends or of_all_sites(numbers),
    )


def lit_w(numbers: Constants, links: int, ends: Ends | None = None) -> float:
    """Watts that lit links draw all day, PUE included, whether anybody fetches or not."""
    pue = sum(one.pue for one in ends or of_all_sites(numbers)) / 2
    return pue * ENDS_PER_LINK * (numbers.end_w.value + numbers.switch_w.value) * links
