"""What a scenario says about energy, against its clock and its sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geokv.scenario.paths import suggest

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario


def energy_problems(scenario: Scenario) -> list[str]:
    """Every contradiction, as ``path: what is wrong``."""
    energy, sites = scenario.energy, list(scenario.topology.sites)
    found = []
    if energy.grade in ("cpu", "nvml") and scenario.clock == "virtual":
        found.append(
            f"energy.grade: {energy.grade} reads a meter, and the virtual clock has none; "
            "use clock: wall, or leave it out"
        )
    elif energy.grade in ("cpu", "nvml") and scenario.is_drill:
        found.append(f"energy.grade: drills are not metered; leave out {energy.grade}")
    if energy.pue is not None and energy.pue.low < 1:
        found.append(f"energy.pue: must be ≥ 1, got {energy.pue.low:g}")
    found += [
        f"energy.sites.{site}: unknown site (known: {', '.join(sites)}){suggest(site, sites)}"
        for site in energy.sites or {}
        if site not in sites
    ]
    if energy.sites and scenario.is_drill:
        found.append(
            "energy.sites: drills count all sites together; set energy.pue, or leave it out"
        )
    promises = scenario.expect.energy
    if promises is not None and promises.following_saves_percent_at_least is not None:
        workload = scenario.workload
        needed = dict.fromkeys((workload.provider, workload.asker))
        lack = [site for site in needed if site not in (energy.sites or {})]
        if lack:
            found.append(
                "expect.energy.following_saves_percent_at_least: needs energy.sites."
                f"{lack[0]}, which says what a kWh costs there"
            )
    return found
