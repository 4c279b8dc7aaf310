"""What a cell stands on: a built lab and started sites, made anew only where they must be."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from geokv.coordinator.deploy import site_settings
from geokv.coordinator.fleet import Fleet
from geokv.lab.build import Lab
from geokv.lab.plan import compile_plan
from geokv.lab.topology import Link, Topology
from geokv.scenario import Cell, Scenario

_BUILT_IN = ("kind", "mtu", "congestion")
"""Parts of a link that a live link cannot change."""


class Ground:
    """Moves from cell to cell; a context manager that ends everything it started.

    Links change live. Sites start anew when their deployment, their cache or a deadline
    changes, the lab when the kind of a link, the byte scale or the seed does.

    Args:
        scenario: of the run; its secrets and keys hold in every cell.
        records: where sites write their history; ``part`` keeps VMs of a run apart.
        watch: entered with each built lab before a site starts, left with it.
    """

    def __init__(
        self,
        scenario: Scenario,
        records: Path,
        part: str,
        progress: Callable[..., None],
        watch: Callable[[Lab], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._scenario = scenario
        self._records = records
        self._part = part
        self._progress = progress
        self._watch = watch
        self._control = Path(tempfile.mkdtemp(prefix="geokv-control-", dir="/run"))
        self._labs = ExitStack()
        self._fleets = ExitStack()
        self._lab: Lab | None = None
        self._fleet: Fleet | None = None
        self._topology: Topology | None = None
        self._built: Any = None
        self._deployed: Any = None
        self._lives = 0

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._fleets.close()
            self._labs.close()
        finally:
            shutil.rmtree(self._control, ignore_errors=True)

    def move_to(self, cell: Cell) -> tuple[Lab, Fleet]:
        """A lab and sites as the cell wants them.

        Raises:
            GeokvError: the lab or a site could not be made.
        """
        lab = self._lab_for(cell)
        return lab, self._fleet_for(cell, lab)

    def pids(self) -> dict[str, int]:
        """Site → its process, of those that run now."""
        sites = self._fleet.sites if self._fleet is not None else {}
        found = {name: site.process.pid for name, site in list(sites.items())}
        return {name: pid for name, pid in found.items() if pid is not None}

    def stats(self) -> dict[str, Any]:
        """Of every site that runs now."""
        sites = self._fleet.sites if self._fleet is not None else {}
        return {name: site.get("/stats") for name, site in sites.items()}

    def _lab_for(self, cell: Cell) -> Lab:
        scale = cell.scenario.deployment.byte_scale
        built = (scale, cell.scenario.seed, _fixed(cell.topology))
        if self._lab is None or built != self._built:
            self._fleets.close()
            self._labs.close()
            self._fleet = None
            plan = compile_plan(cell.topology, scale, cell.scenario.seed)
            self._progress("lab", sites=len(plan.sites), links=len(plan.links))
            self._lab = self._labs.enter_context(Lab.build(plan))
            self._labs.enter_context(self._watch(self._lab))
            self._built, self._topology = built, cell.topology
        assert self._topology is not None
        for link, changes in _differences(self._topology, cell.topology).items():
            self._lab.change(link, **changes)
        self._topology = cell.topology
        return self._lab

    def _fleet_for(self, cell: Cell, lab: Lab) -> Fleet:
        one = cell.scenario
        deployed = (one.seed, one.deployment, one.cache, one.workload.deadline)
        if self._fleet is not None and deployed == self._deployed:
            return self._fleet
        self._fleets.close()
        self._lives += 1
        fleet = self._fleets.enter_context(Fleet())
        self._progress("sites", sites=list(one.topology.sites))
        for settings in site_settings(
            self._scenario, one, lab, self._control, self._records, self._part, self._lives
        ):
            fleet.start_site(settings, lab.netns(settings.name))
        for name in dict.fromkeys((one.workload.provider, one.workload.asker)):
            fleet.start_client(name, lab.access_netns(name))
        fleet.wait_ready()
        self._fleet, self._deployed = fleet, deployed
        return fleet


def _fixed(topology: Topology) -> tuple[Any, ...]:
    return tuple(
        (name, *(getattr(link, field) for field in _BUILT_IN))
        for name, link in topology.links.items()
    )


def _differences(old: Topology, new: Topology) -> dict[str, dict[str, Any]]:
    """Link → field → new value, where they differ."""
    found: dict[str, dict[str, Any]] = {}
    for name, link in new.links.items():
        for field in Link.model_fields:
            if getattr(link, field) != getattr(old.links[name], field):
                found.setdefault(name, {})[field] = getattr(link, field)
    return found
