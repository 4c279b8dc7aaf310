"""Drills as scenarios: what they refuse, their control cell, and that they are read back whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from basic_drill import BASIC

from geokv.errors import ConfigError
from geokv.preflight import preflight
from geokv.scenario import Scenario, load_scenario
from geokv.scenario.timeline import Event, OurEvent
from geokv.scenario.timeline.event import parse_condition
from geokv.site.sabotage import known_sabotages

CUT: dict[str, Any] = {"fault": "link-cut", "link": "a-b", "at": "1s", "for": "500ms"}
DRILL: dict[str, Any] = {
    **BASIC,
    "deployment": {**BASIC["deployment"], "byte_scale": 64},
    "timeline": [CUT],
}


def drill(**changes: Any) -> Scenario:
    return load_scenario({**DRILL, **changes})


def event(**changes: Any) -> dict[str, Any]:
    """The cut with some keys replaced; None takes one away."""
    return {key: value for key, value in {**CUT, **changes}.items() if value is not None}


def stream(**changes: Any) -> dict[str, Any]:
    return {**DRILL["workload"], **changes}


def test_a_drill_is_read_back_as_it_was_written() -> None:
    control = {
        "set": {"cache.substrate.deadline": "9s", "deployment.max_tokens": None},
        "fails": ["never-answered", "expect:link-cut.first_good_within", "fault-fired:kill"],
    }
    silent = {"fault": "silent-drop", "from": "a", "to": "b", "when": "faults.link-cut.healed"}
    kill = {"fault": "site-kill", "site": "a", "when": "requests.done >= 20", "restart": "1s"}
    kill |= {"name": "kill", "after": "50ms", "expect": {"hit_rate_back_within": "2s"}}
    made = drill(timeline=[CUT, silent, kill], control=control)
    assert made.is_drill
    again = load_scenario(yaml.safe_load(made.to_yaml()))
    assert again == made and again.hash == made.hash
    assert [one.title for one in again.timeline] == ["link-cut", "silent-drop", "kill"]
    cut, _, killed = again.timeline
    assert (cut.heals, cut.lasts_s, killed.heals, killed.lasts_s) == (True, 0.5, True, 1.0)
    assert again.control is not None and again.control.set["deployment.max_tokens"] is None


def test_what_is_no_drill_keeps_its_hash() -> None:
    """The hash is the root of a run's secrets: it must not move with keys nobody used."""
    smoke = load_scenario("smoke")
    assert not smoke.is_drill
    assert not {"timeline", "control"} & smoke.resolved().keys()
    assert "drill" not in smoke.resolved()["expect"]


def test_the_last_cell_is_the_control_of_the_first() -> None:
    made = drill(
        sweep=[{"path": "links.a-b.km", "values": [10, 80]}],
        timeline=[CUT, event(name="other", at=2)],
        control={
            "sabotage": "skip-verify",
            "without": ["other"],
            "set": {"cache.substrate.deadline": "9s"},
            "fails": ["corrupt"],
        },
    )
    first, second, control = made.cells()
    assert [cell.label for cell in made.cells()] == ["a-b 10 km", "a-b 80 km", "control"]
    assert first.control is None and second.control is None
    assert control.index == 2 and control.control == made.control
    assert control.settings == first.settings and control.km == 10
    assert [one.title for one in control.scenario.timeline] == ["link-cut"]
    assert control.scenario.cache.substrate.deadline == 9.0
    assert first.scenario.cache.substrate.deadline == 5.0
    assert len(first.scenario.timeline) == 2
    assert control.scenario.workload == first.scenario.workload
    assert control.scenario.seed == first.scenario.seed
    assert [cell.label for cell in drill().cells()] == ["as written"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"timeline": [event(fault="meteor")]}, "timeline.0.fault: must be 'link-cut'"),
    ({"timeline": [event(link="a-c")]}, "timeline.0.link: unknown link 'a-c' (known: a-b)"),
    ({"timeline": [event(at=None)]}, "timeline.0: must have either at or when"),
    ({"timeline": [event(when="requests.done >= 1")]}, "must have either at or when"),
    ({"timeline": [event(after=1)]}, "timeline.0: after: belongs to when"),
    ({"timeline": [event(**{"for": -1})]}, "timeline.0.for: must be > 0, got -1"),
    ({"timeline": [event(depth=3)]}, "timeline.0.depth: unknown key"),
    ({"timeline": [event(expect={"healed_within": 1})]}, "expect.healed_within: unknown key"),
    ({"timeline": [event(at=None, when="soon")]}, "timeline.0.when: must be requests.sent >= N"),
    (
        {"timeline": [event(at=None, when="faults.x.healed")]},
        "timeline.0.when: no event before it is called x",
    ),
    (
        {"timeline": [event(at=None, when="faults.link-cut.healed")]},
        "timeline.0.when: no event before it is called link-cut",
    ),
    (
        {
            "timeline": [
                {"fault": "site-kill", "site": "a", "at": 1},
                event(at=None, when="faults.site-kill.healed"),
            ]
        },
        "timeline.1.when: site-kill never heals",
    ),
    ({"timeline": [CUT, CUT]}, "timeline: 2 events are called link-cut; give them names"),
    (
        {"timeline": [{"fault": "site-freeze", "site": "c", "at": 1}]},
        "timeline.0.site: unknown site 'c'",
    ),
    (
        {"timeline": [event(fault="link-one-way-cut", **{"from": "c"})]},
        "timeline.0.from: unknown site 'c'",
    ),
    (
        {"timeline": [{"fault": "silent-drop", "from": "a", "at": 1}]},
        "timeline.0: from: and to belong together",
    ),
    (
        {"timeline": [{"fault": "silent-drop", "link": "a-b", "from": "a", "to": "b", "at": 1}]},
        "must have exactly one of link, from",
    ),
    (
        {"timeline": [{"fault": "partition", "groups": [["a"], ["a", "b"]], "at": 1}]},
        "timeline.0.groups: a is in two groups",
    ),
    (
        {"timeline": [event(fault="link-flap", times=3, down="1ms", up="1ms")]},
        "timeline.0: for: follows from times, down and up",
    ),
    ({"timeline": [event(fault="link-degrade")]}, "must change at least one of rate, delay"),
    (
        {"timeline": [event(fault="background", share="50%", direction="a-to-c")]},
        "timeline.0.direction: a-to-c is no direction of a-b",
    ),
    (
        {"timeline": [{"fault": "disk-full", "site": "a", "at": 1}]},
        "timeline.0.site: a has no disk (deployment.disk_bytes)",
    ),
    (
        {"timeline": [event(expect={"disk_back_within": "1s"})]},
        "timeline.0.expect.disk_back_within: is of faults of a disk (disk-full, disk-slow, "
        "store-outage)",
    ),
    (
        {"timeline": [{"fault": "key-revoke", "tenant": "tenant-7", "at": 1}]},
        "timeline.0.tenant: unknown tenant 'tenant-7' (known: tenant-0, tenant-1)",
    ),
    (
        {
            "cache": {"directory": {"kind": "local"}},
            "timeline": [{"fault": "event-loss", "share": 0.5, "at": 1}],
        },
        "timeline.0.fault: needs cache.directory.kind central",
    ),
    ({"workload": stream(askers={"c": 1})}, "workload.askers: unknown site 'c'"),
    ({"workload": stream(askers={"a": 1})}, "nothing is shared where the only asker"),
    ({"workload": stream(providers=["a", "a"])}, "providers: a site is listed twice"),
    ({"workload": stream(prefix_tokens=1000)}, "must be a multiple of deployment.chunk_tokens"),
    ({"expect": {"answers_equal": True}}, "expect.answers_equal: is about arms"),
    (
        {"expect": {"changes": [{"of": "ttft", "along": "x", "start": 0, "end": 1, "at_most": 1}]}},
        "expect.changes: of a drill are of what was fetched, needs workload.probe recompute",
    ),
    (
        {"expect": {"drill": {"ttft_rise_percent_at_most": {"z": 1}}}},
        "expect.drill.ttft_rise_percent_at_most.z: nobody asks there",
    ),
    ({"control": {"fails": ["corrupt"]}}, "control: must have a sabotage, something set, or an"),
    ({"control": {"sabotage": "x", "fails": ["rust"]}}, "no line is called 'rust'"),
    (
        {"control": {"without": ["link-cat"], "fails": ["corrupt"]}},
        "control.without: no event is called link-cat; did you mean link-cut?",
    ),
    ({"control": {"set": {"seed": 2}, "fails": ["corrupt"]}}, "control.set: seed is the same"),
    (
        {"control": {"set": {"cache.substrate.deadline": -1}, "fails": ["corrupt"]}},
        "control: cache.substrate.deadline: must be > 0",
    ),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_makes_no_drill_is_refused_with_its_path(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        drill(**changes)
    assert said in caught.value.message


def test_parts_of_a_drill_need_a_stream() -> None:
    shared = {"kind": "shared-prefix", "provider": "a", "asker": "b", "prefix_tokens": 1024}
    for part in (
        {"timeline": [CUT]},
        {"timeline": [], "control": {"sabotage": "skip-verify", "fails": ["corrupt"]}},
        {"timeline": [], "expect": {"drill": {"answered": 1.0}}},
    ):
        with pytest.raises(ConfigError, match=r"needs workload\.kind stream"):
            drill(workload=shared, **part)


def test_overrides_reach_into_the_timeline() -> None:
    made = load_scenario(DRILL, ["timeline.0.at=2s", "timeline.0.for=1s", "workload.rate=5"])
    assert (made.timeline[0].at, made.timeline[0].lasts_s) == (2.0, 1.0)
    with pytest.raises(ConfigError, match=r"did you mean timeline\.0\.for"):
        load_scenario(DRILL, ["timeline.0.four=1s"])


def test_preflight_knows_every_fault_and_sabotage() -> None:
    planted = drill(control={"sabotage": "skip-verify", "fails": ["corrupt"]})
    assert preflight(planted).kv_bytes_per_token > 0
    misspelt = drill(control={"sabotage": "skip-verifi", "fails": ["corrupt"]})
    with pytest.raises(ConfigError, match=r"control\.sabotage: unknown 'skip-verifi'"):
        preflight(misspelt)
    assert {"fetch-waits-forever", "skip-verify"} <= set(known_sabotages())


def test_preflight_looks_at_the_control_too() -> None:
    control = {"set": {"deployment.device_bytes": "1MiB"}, "fails": ["never-answered"]}
    with pytest.raises(ConfigError, match=r"cell control: deployment.device_bytes"):
        preflight(drill(control=control))


def test_conditions_are_taken_apart() -> None:
    assert parse_condition("requests.sent>=3")[:2] == ("sent", 3)
    assert parse_condition(" requests.done >= 20 ")[:2] == ("done", 20)
    assert parse_condition("faults.cut-1.took_effect")[2:] == ("cut-1", "took_effect")
    for text in ("requests.done > 3", "faults.cut", "faults.cut.gone", "requests.done >= -1"):
        with pytest.raises(ValueError, match="must be requests"):
            parse_condition(text)


def test_every_kind_of_fault_is_in_the_documented_table() -> None:
    union = get_args(get_args(OurEvent)[0])
    kinds = {get_args(model.model_fields["fault"].annotation)[0] for model in union}
    assert len(kinds) == len(union) and all(issubclass(model, Event) for model in union)
    doc = Path(__file__).resolve().parents[3] / "docs" / "scenarios.md"
    table = doc.read_text(encoding="utf-8").split("### Faults", 1)[1].split("\n#", 1)[0]
    listed = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")][1:]
    assert {name.strip() for row in listed[1:] for name in row.split(",")} == kinds


LOAD: dict[str, Any] = {"fault": "background", "link": "a-b", "share": 0.5, "at": 0}


def test_what_an_event_is_can_be_swept() -> None:
    sweep = [
        {"path": "timeline.load.share", "values": [0, "80%"]},
        {"path": "timeline.link-cut.for", "values": ["1s"]},
    ]
    made = drill(timeline=[CUT, {**LOAD, "name": "load"}], sweep=sweep)
    timelines = [cell.scenario.timeline for cell in made.cells()]
    assert [events[1].share for events in timelines] == [0, 0.8]  # type: ignore[union-attr]
    assert {events[0].lasts_s for events in timelines} == {1.0}
    assert [cell.label for cell in made.cells()] == ["share 0, for 1s", "share 80%, for 1s"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("timeline.load.shade", "nothing is called timeline.load.shade"),
        ("timeline.load.fault", "nothing is called timeline.load.fault"),
        ("timeline.cut.for", "nothing is called timeline.cut.for"),
        # Another event has that fault, and a name.
        ("timeline.background.share", "nothing is called timeline.background.share"),
    ],
)
def test_what_no_event_is_cannot_be_swept(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        drill(timeline=[CUT, {**LOAD, "name": "load"}], sweep=[{"path": path, "values": [1]}])


def test_a_drill_draws_what_it_compares() -> None:
    figure = {"kind": "lines", "name": "f", "title": "F", "of": "ttft", "x": "links.a-b.km"}
    heat = {**figure, "kind": "heat", "y": "timeline.link-cut.for"}
    swept = {"sweep": [{"path": "links.a-b.km", "values": [1, 2]}]}
    with pytest.raises(ConfigError, match=r"needs workload\.probe recompute"):
        drill(**swept, figures=[figure])
    probed = {**swept, "workload": stream(probe="recompute")}
    assert drill(**probed, figures=[figure]).figures[0].kind == "lines"
    with pytest.raises(ConfigError, match=r"figures\.0\.kind: of a drill must be lines, got heat"):
        drill(**probed, figures=[heat])
    with pytest.raises(
        ConfigError, match=r"figures\.0\.of: a drill has no time of the fetch alone"
    ):
        drill(**probed, figures=[{**figure, "of": "fetch"}])
