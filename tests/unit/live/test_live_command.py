"""Commands are read by the models of a timeline, and against the drill they are for."""

from __future__ import annotations

from typing import Any

import pytest

from geokv.errors import ConfigError
from geokv.live.command import Heal, Inject, Stop, event_by_hand, read_command
from geokv.scenario import Scenario, load_scenario

CUT = {"fault": "link-cut", "link": "a-b"}


@pytest.fixture(scope="module")
def drill() -> Scenario:
    return load_scenario("live")


def test_the_three_commands_are_read() -> None:
    inject = read_command({"id": "one", "do": "inject", "event": CUT})
    assert isinstance(inject, Inject) and inject.event == CUT
    heal = read_command({"id": "two", "do": "heal", "name": "link-cut-1"})
    assert isinstance(heal, Heal) and heal.name == "link-cut-1"
    assert isinstance(read_command({"id": "three", "do": "stop"}), Stop)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "command.do: is required"),
        ({"id": "x", "do": "explode"}, "command.do: must be"),
        ({"id": "x", "do": "stop", "now": True}, "command.now: unknown key"),
        ({"do": "stop"}, "command.id: is required"),
        ({"id": "a b", "do": "stop"}, "command.id: "),
        ({"id": "x", "do": "inject", "event": 3}, "command.event: "),
        ({"id": "x", "do": "heal", "name": "../x"}, "command.name: "),
        ("not even JSON", "command: "),
        (None, "command: "),
    ],
)
def test_what_is_no_command_is_refused_with_its_place(data: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_command(data)
    assert refused.value.message.startswith(said)


def test_a_fault_by_hand_is_now_and_has_a_free_name(drill: Scenario) -> None:
    event = event_by_hand(drill, {**CUT, "for": "5s"}, ["link-cut-1", "other"], 12.5)
    assert (event.title, event.at, event.lasts_s, event.heals) == ("link-cut-2", 12.5, 5.0, True)
    assert event_by_hand(drill, CUT, [], 1.0).title == "link-cut-1"
    assert event_by_hand(drill, CUT, [], 1.0).lasts_s is None
    later = event_by_hand(drill, {**CUT, "name": "mine", "at": "20s"}, [], 1.0)
    assert (later.title, later.at) == ("mine", 20.0)
    when = event_by_hand(drill, {**CUT, "when": "faults.mine.healed"}, ["mine"], 1.0)
    assert when.at is None and when.condition is not None


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"fault": "link-cut"}, "event.link: is required"),
        ({"fault": "link-cut", "link": "a-z"}, "event.link: unknown link 'a-z'"),
        ({"fault": "site-kill", "site": "q"}, "event.site: unknown site 'q'"),
        ({**CUT, "for": "soon"}, "event.for: must be a time"),
        ({**CUT, "name": "taken"}, "event.name: taken is the name of another fault"),
        ({**CUT, "expect": {"first_good_within": "1s"}}, "event.expect: "),
        ({**CUT, "when": "faults.nobody.healed"}, "event.when: no fault is called nobody"),
        ({"fault": "os:system"}, "event.fault: must be"),
        ({"link": "a-b"}, "event.fault: is required"),
        ({**CUT, "force": True}, "event.force: unknown key"),
    ],
)
def test_what_the_drill_does_not_have_is_refused(
    drill: Scenario, event: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        event_by_hand(drill, event, ["taken"])
    assert refused.value.message.startswith(said)


def test_a_measurement_run_takes_no_faults() -> None:
    with pytest.raises(ConfigError, match="faults are made in drills"):
        event_by_hand(load_scenario("smoke"), CUT, [])


def test_the_shipped_scenario_is_a_drill_that_waits_for_somebody(drill: Scenario) -> None:
    assert drill.is_drill and not drill.timeline and drill.control is None
    assert len(drill.topology.sites) == 3 and drill.vm.jobs == 1
    assert drill.workload.requests / drill.workload.rate == pytest.approx(600)
