"""How long a purge may take is worked out from the scenario, before anybody is asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from geokv.coordinator.faults.purge import PurgeFault
from geokv.lab.plan import compile_plan
from geokv.paths import CHECKOUT
from geokv.scenario import load_scenario


@pytest.mark.parametrize(("site", "within_ns"), [("a", 662_000_000), ("b", 662_350_000)])
def test_a_purge_may_take_its_bound_and_a_detection(site: str, within_ns: int) -> None:
    """500 ms of bound, three beats of 50 ms, 12 ms of looks and timers; and from another site than
    the authority the round trip of 35 km."""
    scenario = load_scenario(str(CHECKOUT / "scenarios/drills/purge-under-partition.yaml"))
    (event,) = [one for one in scenario.timeline if one.fault == "purge"]
    lab = SimpleNamespace(plan=compile_plan(scenario.topology, 64, 1))
    stage: Any = SimpleNamespace(scenario=scenario, lab=lab)
    fault = PurgeFault(event.model_copy(update={"site": site}), stage)
    assert fault._within_ns() == within_ns
