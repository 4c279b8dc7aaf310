"""Faults drawn from the seed: the same for the same seed, concrete in what a run keeps, and never
two at a time of one thing."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from geokv.errors import ConfigError
from geokv.lab.topology import ends
from geokv.scenario import Scenario, load_scenario
from geokv.scenario.load import read_back
from geokv.scenario.timeline.chaos import KINDS
from geokv.scenario.timeline.draws import WAYS

CHAOS = Path(__file__).resolve().parents[3] / "scenarios" / "drills" / "chaos.yaml"


def chaos(seed: int = 1, **random: Any) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(CHAOS.read_text(encoding="utf-8"))
    data["timeline"] = [{"random": {**data["timeline"][0]["random"], **random}}]
    return {**data, "seed": seed}


def drawn(seed: int, **random: Any) -> list[tuple[str, float | None]]:
    return [(event.title, event.at) for event in load_scenario(chaos(seed, **random)).timeline]


def span(event: Any) -> tuple[float, float]:
    return event.at, event.at + (event.lasts_s or 0.0)


def things(event: Any, scenario: Scenario) -> set[str]:
    """Links and sites an event happens to."""
    found = {getattr(event, "link", None), getattr(event, "site", None)} - {None}
    if event.fault == "partition":
        found |= set(scenario.topology.links)
    if event.fault == "corrupt-chunk":
        found |= set(ends(event.link))
    if event.fault.startswith(("directory-", "event-")):
        found |= set(scenario.topology.sites)
    return found


def test_the_seed_decides() -> None:
    assert drawn(7) == drawn(7)
    assert len({tuple(drawn(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize("seed", range(40))
def test_faults_are_within_their_time_and_never_meet_at_one_thing(seed: int) -> None:
    scenario = load_scenario(chaos(seed))
    events = scenario.timeline
    assert len(events) == 6 and len({event.title for event in events}) == 6
    assert [event.at for event in events] == sorted(event.at or 0.0 for event in events)
    for event in events:
        assert 1.0 <= (event.at or 0.0) <= 4.0
        assert event.lasts_s is None or 0.05 <= event.lasts_s <= 0.5
    for one, other in combinations(events, 2):
        if things(one, scenario) & things(other, scenario):
            (_, first_over), (second, _) = sorted((span(one), span(other)))
            assert second - first_over >= 0.5, (one.title, other.title)


def test_what_waits_for_an_event_has_time_to_meet_one() -> None:
    """It lasts from then on, and must be over before the next of its kind."""
    kinds = ["event-loss", "event-duplicate", "event-reorder"]
    for seed in range(20):
        events = load_scenario(chaos(seed, faults=kinds, count=4, over="12s")).timeline
        for one, other in combinations(events, 2):
            (_, first_over), (second, _) = sorted((span(one), span(other)))
            least_s = 1.5 if one.fault == other.fault else 0.5
            assert second - first_over >= least_s, (one.title, other.title)


def test_every_kind_can_be_drawn() -> None:
    assert set(WAYS) == set(KINDS)
    data = chaos(1, faults=list(KINDS), over="60s", count=40)
    # Whatever else is wrong with a fault is said when it is loaded.
    data["workload"]["requests"] = 2000
    seen: set[str] = set()
    for seed in range(12):
        seen |= {event.fault for event in load_scenario({**data, "seed": seed}).timeline}
    assert seen == set(KINDS)


@pytest.mark.slow
def test_a_partition_has_two_sides() -> None:
    for seed in range(30):
        for event in load_scenario(chaos(seed, faults=["partition"], count=2)).timeline:
            groups = event.groups  # type: ignore[union-attr]
            assert all(groups) and sorted(groups[0] + groups[1]) == ["a", "b", "c"]


@pytest.mark.slow
def test_chunks_are_damaged_where_chunks_go() -> None:
    """Between two sites that compute no prefix hardly any goes, and such a fault is never seen."""
    links = set()
    for seed in range(30):
        drawn = load_scenario(chaos(seed, faults=["corrupt-chunk"], count=2)).timeline
        links |= {event.link for event in drawn}  # type: ignore[union-attr]
    assert links == {"a-b", "a-c"}


@pytest.mark.slow
def test_a_table_that_began_anew_goes_back_to_nothing() -> None:
    """What was kept of it went with it, and a stale restart could not be done."""
    kinds = ["directory-restart", "directory-kill", "site-kill", "link-cut"]
    how = set()
    for seed in range(60):
        gone = False
        for event in load_scenario(chaos(seed, faults=kinds, count=4)).timeline:
            if event.fault == "directory-restart":
                assert event.how == "empty" or not gone
                how.add((event.how, gone))
            gone = gone or event.fault.startswith("directory-") or things_of(event) == {"c"}
    assert ("stale", False) in how and ("empty", True) in how


def things_of(event: Any) -> set[str]:
    return {event.site} if event.fault == "site-kill" else set()


def test_what_a_run_keeps_are_the_faults(tmp_path: Path) -> None:
    scenario = load_scenario(chaos(3))
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario.to_yaml(), encoding="utf-8")
    kept = yaml.safe_load(path.read_text(encoding="utf-8"))["timeline"]
    assert [event["name"] for event in kept] == [event.title for event in scenario.timeline]
    assert read_back(path) == scenario and read_back(path).hash == scenario.hash


def test_faults_beside_random_ones_stay_as_they_are() -> None:
    data = chaos()
    cut = {"fault": "link-cut", "link": "a-b", "at": "4.6s", "for": "50ms", "name": "last"}
    data["timeline"].append(cut)
    assert [event.title for event in load_scenario(data).timeline][-1] == "last"


def test_it_is_set_as_it_is_written() -> None:
    few = load_scenario(chaos(), ["timeline.0.random.count=2"])
    assert len(few.timeline) == 2
    assert load_scenario(chaos(), ["seed=9"]).timeline == load_scenario(chaos(9)).timeline
    with pytest.raises(ConfigError, match=r"timeline\.0\.at: nothing is called that"):
        load_scenario(chaos(), ["timeline.0.at=1s"])


@pytest.mark.parametrize(
    ("random", "said"),
    [
        ({"count": 60}, r"timeline\.0\.random\.count: 60 faults of 0\.5 s do not fit into 3 s"),
        ({"shortest": "2s"}, r"timeline\.0\.random: shortest: must be ≤ longest"),
        ({"faults": ["nope"]}, r"timeline\.0\.random: faults\.0: input should be 'link-cut'"),
        ({"often": 1}, r"timeline\.0\.random: often: unknown key"),
    ],
)
def test_what_is_wrong_with_it_is_said(random: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_scenario(chaos(1, **random))


def test_a_seed_that_is_no_number_is_said_to_be_wrong() -> None:
    with pytest.raises(ConfigError, match="seed"):
        load_scenario({**chaos(), "seed": "x"})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("cache",), 5),
        (("cache", "directory"), "central"),
        (("cache", "directory", "site"), ["c"]),
        (("deployment",), "big"),
        (("workload", "tenants"), "two"),
        (("workload", "providers"), 3),
    ],
)
def test_what_is_wrong_beside_it_is_said_in_its_place(path: tuple[str, ...], value: Any) -> None:
    data = chaos()
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ConfigError, match=r"\.".join(path)):
        load_scenario(data)


def test_the_docs_name_its_keys_and_defaults() -> None:
    from geokv.scenario.timeline.chaos import Random

    doc = (CHAOS.parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for name, field in Random.model_fields.items():
        default = "required" if field.is_required() else f"`{field.default}`"
        assert f"| `random.{name}` | {default} |" in doc
    assert doc.count("| `random.") == len(Random.model_fields)
