"""One cell: check the links, run every arm, check them again."""

from __future__ import annotations

from typing import Any

from geokv.clock import now_ns
from geokv.coordinator.asking import Asker, Progress, Write
from geokv.coordinator.deploy import tenants
from geokv.coordinator.fleet import Fleet
from geokv.coordinator.planting import CONTROLS, Planter
from geokv.coordinator.prompts import make_prompts
from geokv.coordinator.timers import LateTimers
from geokv.coordinator.tracing import Setup
from geokv.lab.build import Lab
from geokv.lab.check import LinkCheck, check_links
from geokv.live.events import planned_links
from geokv.scenario import Cell, Scenario
from geokv.scenario.workload import WorkingSet
from geokv.site.settings import Reuse

_WARM_FLOOR_BYTES = 4 * 2**20
_REUSE: dict[str, Reuse] = {"recompute": "none", "local-hit": "local", "remote-hit": "remote"}


class CellRunner:
    """Runs one cell on a lab and sites that are as it wants them.

    Args:
        run: the scenario of the run; keys and prompts are the same in all its cells.
        write: takes ``(file name, record)``; one JSON line each.
        progress: told about every step, for people and for the watchdog.
        timers: counts late ones; on the wall clock only.
    """

    def __init__(
        self,
        run: Scenario,
        cell: Cell,
        lab: Lab,
        fleet: Fleet,
        write: Write,
        progress: Progress,
        timers: LateTimers | None = None,
    ) -> None:
        self._cell = cell
        self._timers = timers
        self._scenario = cell.scenario
        self._lab = lab
        self._fleet = fleet
        self._write = write
        self._progress = progress
        prompts = make_prompts(cell.scenario)
        self._setup = Setup(fleet)
        self._asker = Asker(
            cell.scenario, tenants(run), lab, fleet, prompts, self._setup, write, progress
        )
        self._planter = Planter(cell.scenario, fleet, self._asker, prompts, self._setup)

    def run(self) -> None:
        """Start to end; the cell's record is written last."""
        cell = self._cell
        workload = self._scenario.workload
        self._asker.on_the_beat()
        started_ns = now_ns()
        links = planned_links(self._lab.plan)
        self._progress("cell", cell=cell.index, label=cell.label, links=links)
        if self._timers is not None:
            self._timers.since()
        before = self._check("before")
        before_stats = self._stats()
        self._warm()
        self._prepare()
        planted = {}
        for arm in self._scenario.arms:
            if arm in CONTROLS:
                planted[arm] = self._planter.plant(cell.index, arm)
            for repeat in range(workload.warmup):
                self._request(arm, repeat, warmup=True)
            for repeat in range(workload.requests):
                self._request(arm, repeat, warmup=False)
            if arm in CONTROLS:
                self._planter.clear()
        integrity = {}
        for name, site in self._fleet.sites.items():
            site.post("/settle")
            integrity[name] = site.get("/integrity")["integrity"]
        stats = self._stats()
        late = {name: one["late_ns"] - before_stats[name]["late_ns"] for name, one in stats.items()}
        timers = {} if self._timers is None else {"timers": self._timers.since()}
        after = self._check("after")
        path = self._lab.plan.path(workload.provider, workload.asker)
        self._write(
            "cells",
            {
                "cell": cell.index,
                "settings": cell.settings,
                "out_of_range": cell.out_of_range,
                "started_ns": started_ns,
                "ended_ns": now_ns(),
                "links": [*before, *after],
                "path": {
                    "rtt_ns": path.rtt_ns,
                    "payload_rate_bps": path.payload_rate_bps,
                    "rate_bps": path.rate_bps,
                },
                "integrity": integrity,
                "late_ns": late,
                **timers,
                "directory": {
                    name: _traffic_since(before_stats[name], one) for name, one in stats.items()
                },
                "planted": planted,
            },
        )

    def _stats(self) -> dict[str, dict[str, Any]]:
        return {name: site.get("/stats") for name, site in self._fleet.sites.items()}

    # -- the network -----------------------------------------------------------

    def _check(self, phase: str) -> list[dict[str, Any]]:
        self._progress("check", cell=self._cell.index, phase=phase)
        found = check_links(self._lab, clock=self._scenario.clock)
        return [_link_record(one, phase) for one in found]

    def _warm(self) -> None:
        """Fresh connections for this cell, with open congestion windows if asked for."""
        for site in self._fleet.sites.values():
            site.post("/connect", deadline_s=60)
        if not self._scenario.cache.substrate.fresh:
            self._open_windows()

    def _open_windows(self) -> None:
        substrate = self._scenario.cache.substrate
        if not substrate.warm:
            return
        workload = self._scenario.workload
        bdp_bytes = self._lab.plan.path(workload.provider, workload.asker).bdp_bytes
        # Slow start doubles: a window of w has cost about 2 w by the time it is open. Cubic
        # leaves it near one bandwidth-delay product, when the line's queue begins to grow
        # (HyStart), and goes on slowly from there.
        per_stream = max(_WARM_FLOOR_BYTES, 8 * bdp_bytes // substrate.streams)
        self._fleet.sites[workload.asker].post("/warm", bytes_per_stream=per_stream)

    # -- requests --------------------------------------------------------------

    def _prepare(self) -> None:
        """Empty every cache, then let the provider compute, store and publish the prefix."""
        workload = self._scenario.workload
        for site in self._fleet.sites:
            self._setup.settle(site)
            self._setup.forget(site)
        self._setup.reuse(workload.provider, "local")
        prefixes = workload.prefixes if isinstance(workload, WorkingSet) else 1
        for number in range(prefixes):
            self._asker.prepare(self._cell.index, number, workload.provider)
            self._setup.settle(workload.provider)

    def _request(self, arm: str, repeat: int, warmup: bool) -> None:
        """One request of one arm, with the asker's caches as the arm wants them."""
        first = repeat == 0 and (warmup or not self._scenario.workload.warmup)
        workload = self._scenario.workload
        asker, setup = workload.asker, self._setup
        setup.settle(asker)
        if arm == "remote-hit" and self._scenario.cache.substrate.fresh:
            self._fleet.sites[asker].post("/connect", deadline_s=60)
            self._open_windows()
        if isinstance(workload, WorkingSet):
            if first:
                setup.reuse(asker, _REUSE[arm])
                setup.forget(asker)
        elif arm in _REUSE:
            setup.reuse(asker, _REUSE[arm])
            if arm != "local-hit":
                setup.forget(asker)
            elif repeat == 0:
                self._make_local(warmup)
        self._asker.question(self._cell.index, arm, repeat, warmup, workload.asker)

    def _make_local(self, warmup: bool) -> None:
        """Bring the prefix to the asker's device before its first local hit."""
        workload = self._scenario.workload
        self._asker.prepare(self._cell.index, 1 + warmup, workload.asker)
        self._setup.settle(workload.asker)


def _traffic_since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, int]]:
    """What a site and its directory said over a link between two looks at its figures."""
    old: dict[str, dict[str, int]] = before["cache"]["directory"].get("traffic", {})
    new: dict[str, dict[str, int]] = after["cache"]["directory"].get("traffic", {})
    return {
        op: {name: value - old.get(op, {}).get(name, 0) for name, value in counted.items()}
        for op, counted in new.items()
    }


def _link_record(check: LinkCheck, phase: str) -> dict[str, Any]:
    forward, backward = check.goodput_forward_bps, check.goodput_backward_bps
    worse = None if forward is None or backward is None else min(forward, backward)
    return {
        "link": check.link,
        "phase": phase,
        "rtt_asked_ns": check.rtt_asked_ns,
        "rtt_expected_ns": check.rtt_expected_ns,
        "rtt_measured_ns": check.rtt_measured_ns,
        "rtt_max_ns": check.rtt_max_ns,
        "jitter_measured_ns": check.jitter_measured_ns,
        "loss_measured": check.loss_measured,
        "goodput_asked_bps": check.goodput_asked_bps,
        "goodput_measured_bps": worse,
        "goodput_forward_bps": forward,
        "goodput_backward_bps": backward,
        "drops": check.dropped_packets,
        "ok": check.ok,
        "problems": check.problems,
    }
