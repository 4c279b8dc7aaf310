"""Who serves: by hand, and what a scenario may say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from geokv import Arrival, ConfigError, RunError, Scenario, SiteLoad, foreign
from geokv.preflight import preflight, provenance_of_code
from geokv.routing import POLICIES, check_routing, make_routing
from geokv.routing.door import Doors
from geokv.scenario.routing import OURS

SITES = ("a", "b", "c")
MINE = """
class Even:
    def __init__(self, door, sites):
        self.sites = sites

    def choose(self, request, sites):
        return self.sites[len(request.tokens) % 2]

class Lost(Even):
    def choose(self, request, sites):
        return "nowhere"

class Broken(Even):
    def choose(self, request, sites):
        return 1 / 0

class Deaf:
    def __init__(self, door, sites): ...

class Odd:
    def __init__(self): ...
"""


def arrival(number: int, door: str = "b") -> Arrival:
    return Arrival(number, door, "tenant-0", (1, 2, 3))


def test_the_scenario_knows_the_policies_there_are() -> None:
    assert set(OURS) == set(POLICIES)


def test_the_asked_site_serves_by_default() -> None:
    doors = Doors("asker", ("a",))
    assert [doors.choose(arrival(n, door)) for n, door in enumerate("bcab")] == list("bcab")


def test_round_robin_begins_at_home() -> None:
    doors = Doors("round-robin", SITES)
    assert [doors.choose(arrival(n)) for n in range(4)] == ["b", "c", "a", "b"]
    # Another door counts for itself.
    assert doors.choose(arrival(4, "c")) == "c"


def test_least_loaded_counts_what_is_open_and_what_failed() -> None:
    policy = make_routing("least-loaded", "b", SITES)
    idle = [SiteLoad(site, sent=5, open=0, errors=0) for site in SITES]
    assert policy.choose(arrival(0), idle) == "b"
    doors = Doors("least-loaded", SITES)
    assert [doors.choose(arrival(n)) for n in range(4)] == ["b", "a", "c", "b"]
    doors.ended("b", "c", answered=True)
    assert doors.choose(arrival(4)) == "c"
    doors.ended("b", "c", answered=False)
    doors.ended("b", "a", answered=True)
    # a has none open; c has none either, but its last request came to nothing.
    assert doors.choose(arrival(5)) == "a"
    doors.ended("b", "a", answered=True)
    doors.ended("b", "b", answered=True)
    doors.ended("b", "b", answered=True)
    assert doors.choose(arrival(6)) == "b"


def test_a_policy_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own_routing.py").write_text(MINE)
    foreign.use_folders([str(tmp_path)])
    check_routing("own_routing:Even", "b", SITES)
    assert Doors("own_routing:Even", SITES).choose(arrival(0)) == "b"
    with pytest.raises(RunError, match="chose 'nowhere' for request 0, which is none of a, b, c"):
        Doors("own_routing:Lost", SITES).choose(arrival(0))
    for name, said in (
        ("Lost", "chose 'nowhere'"),
        ("Broken", "failed its trial: ZeroDivisionError"),
        ("Deaf", "has no method choose"),
        ("Odd", "cannot be made: TypeError"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_routing(f"own_routing:{name}", "b", SITES)
    drill = Scenario("link-cut").with_(code=[str(tmp_path)])
    scenario = drill.with_({"routing.policy": "own_routing:Even"}).checked
    preflight(scenario)
    assert [one["file"] for one in provenance_of_code(scenario)] == ["own_routing.py"]
    wrong = drill.with_({"routing.policy": "own_routing:Deaf"})
    with pytest.raises(ConfigError, match=r"^routing\.policy: routing policy own_routing:Deaf"):
        preflight(wrong.checked)
    foreign.use_folders([])


def test_what_a_scenario_may_say() -> None:
    drill = Scenario("link-cut")
    assert "routing" not in drill.checked.resolved()
    swept = drill.with_({"control": None}).sweep("routing.policy", ["asker", "least-loaded"])
    assert [cell["routing.policy"] for cell in swept.cells] == ["asker", "least-loaded"]
    with pytest.raises(ConfigError, match=r"routing\.sites: unknown site 'z'"):
        drill.with_({"routing.sites": ["a", "z"]})
    with pytest.raises(ConfigError, match=r"routing\.policy: must be asker, round-robin"):
        drill.with_({"routing.policy": "random"})
    with pytest.raises(ConfigError, match=r"routing\.policy: needs workload\.kind stream"):
        Scenario("smoke").with_({"routing.policy": "round-robin"})
