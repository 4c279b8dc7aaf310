"""geokv: share KV caches between small data centres, on an emulated optical network.

The rooms, in the order in which a run passes through them: ``scenario`` (what to
run), ``vm`` (where), ``lab`` (the network), ``site`` with ``engine`` and ``cache``
(the system under test), ``coordinator`` (control), ``measure`` and ``report``.
``docs/architecture.md`` is the tour.

From Python:

    from geokv import Scenario, run

    near = run(Scenario("smoke").with_({"links.a-b.rate": "40G"}))
    near.verdict, near.table

Names are imported when they are first used, so that ``import geokv`` itself is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geokv.api.run import Picture, Run, load_run, run
    from geokv.api.scenario import Scenario
    from geokv.api.start import Running, start
    from geokv.cache.lifetime.fifo import Fifo
    from geokv.cache.lifetime.lru import Lru
    from geokv.cache.lifetime.policy import EvictionPolicy, MayGo
    from geokv.clock import now_ns
    from geokv.coordinator.drill.stage import Stage
    from geokv.coordinator.faults.fault import Evidence, Fault
    from geokv.errors import ConfigError, FaultError, GeokvError, RunEnded, RunError
    from geokv.routing.policy import Arrival, RoutingPolicy, SiteLoad

__version__ = "0.1.0"

_WHERE = {
    "Scenario": "geokv.api.scenario",
    "run": "geokv.api.run",
    "start": "geokv.api.start",
    "load_run": "geokv.api.run",
    "Run": "geokv.api.run",
    "Running": "geokv.api.start",
    "Picture": "geokv.api.run",
    "EvictionPolicy": "geokv.cache.lifetime.policy",
    "MayGo": "geokv.cache.lifetime.policy",
    "Fifo": "geokv.cache.lifetime.fifo",
    "Lru": "geokv.cache.lifetime.lru",
    "RoutingPolicy": "geokv.routing.policy",
    "Arrival": "geokv.routing.policy",
    "SiteLoad": "geokv.routing.policy",
    "Fault": "geokv.coordinator.faults.fault",
    "Evidence": "geokv.coordinator.faults.fault",
    "Stage": "geokv.coordinator.drill.stage",
    "now_ns": "geokv.clock",
    "GeokvError": "geokv.errors",
    "ConfigError": "geokv.errors",
    "RunError": "geokv.errors",
    "RunEnded": "geokv.errors",
    "FaultError": "geokv.errors",
}

__all__ = [
    "Arrival",
    "ConfigError",
    "EvictionPolicy",
    "Evidence",
    "Fault",
    "FaultError",
    "Fifo",
    "GeokvError",
    "Lru",
    "MayGo",
    "Picture",
    "RoutingPolicy",
    "Run",
    "RunEnded",
    "RunError",
    "Running",
    "Scenario",
    "SiteLoad",
    "Stage",
    "load_run",
    "now_ns",
    "run",
    "start",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'geokv' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
