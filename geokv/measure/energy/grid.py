"""What a joule at the machines comes to at the meters of the two sites that a request is about.

A site's own PUE and carbon intensity (``energy.sites``) go before the constants of all sites. Of an
intensity by hour it is the day's mean: an account knows no hour, and requests are taken to come
evenly. What hours do is ``sun.py``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from geokv.measure.energy.constants import Constants
from geokv.scenario import Scenario


@dataclass(frozen=True)
class Grid:
    """The power of one site: meter over machines, and grams of CO2 equivalent per kWh."""

    pue: float
    carbon_intensity_g_per_kwh: float


class Ends(NamedTuple):
    """Of a request, and of the link that its KV may come over.

    Attributes:
        here: where it is served: the asker.
        there: the link's other end: the provider.
    """

    here: Grid
    there: Grid


def ends_of(scenario: Scenario, numbers: Constants) -> Ends:
    """Of asker and provider of a scenario's workload."""
    workload = scenario.workload
    return Ends(*(_grid(scenario, site, numbers) for site in (workload.asker, workload.provider)))


def of_all_sites(numbers: Constants) -> Ends:
    """Both ends as the constants have them."""
    grid = Grid(numbers.pue.value, numbers.carbon_intensity_g_per_kwh.value)
    return Ends(grid, grid)


def _grid(scenario: Scenario, site: str, numbers: Constants) -> Grid:
    own = (scenario.energy.sites or {}).get(site)
    pue, intensity = numbers.pue.value, numbers.carbon_intensity_g_per_kwh.value
    if own is None:
        return Grid(pue, intensity)
    hours = own.by_hour("carbon_intensity_g_per_kwh")
    return Grid(own.pue or pue, sum(hours) / len(hours) if hours else intensity)
