"""``--set``: names, types, suggestions, and what it does to a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from geokv.errors import ConfigError
from geokv.scenario import load_scenario, read_back


def test_values_are_set_by_name() -> None:
    scenario = load_scenario(
        "distance_ttft",
        [
            "deployment.byte_scale=1",
            "workload.requests=3",
            "cache.substrate.deadline=250ms",
            "links.a-b.rate=400G",
            "seed=7",
        ],
    )
    assert scenario.deployment.byte_scale == 1
    assert scenario.workload.requests == 3
    assert scenario.cache.substrate.deadline == 0.25
    assert scenario.topology.links["a-b"].rate == 400_000_000_000
    assert scenario.seed == 7


def test_overrides_change_the_hash_and_nothing_else_does() -> None:
    plain = load_scenario("smoke")
    assert load_scenario("smoke").hash == plain.hash
    assert load_scenario("smoke", ["seed=2"]).hash != plain.hash


def test_a_swept_path_that_is_set_keeps_one_value(tmp_path) -> None:  # type: ignore[no-untyped-def]
    scenario = load_scenario("distance_ttft", ["links.a-b.km=50"])
    assert [(cell.km, cell.out_of_range) for cell in scenario.cells()] == [(50, False)]
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario.to_yaml())
    assert read_back(path) == scenario


def test_an_out_of_range_value_stays_marked() -> None:
    scenario = load_scenario("distance_ttft", ["links.a-b.km=600"])
    assert [(cell.km, cell.out_of_range) for cell in scenario.cells()] == [(600, True)]


def test_the_sweep_itself_can_be_set() -> None:
    scenario = load_scenario("distance_ttft", ["sweep.0.values=[0, 5]"])
    assert [cell.km for cell in scenario.cells()] == [0, 5, 600, 3000]


def test_topology_can_be_exchanged() -> None:
    assert len(load_scenario("smoke", ["topology=metro-ring"]).topology.sites) == 5


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("links.a-b.km=-3", "links.a-b.km: must be ≥ 0, got -3"),
        ("links.a-b.rate=0", "links.a-b.rate: must be > 0, got 0"),
        ("links.a-c.km=3", "--set links.a-c.km: nothing is called that; did you mean links.a-b.km"),
        ("workload.request=3", "did you mean workload.requests"),
        ("workload.requests", "must be path=value"),
        ("=3", "must be path=value"),
        ("a..b=3", "must be path=value"),
        ("workload.requests=[", "not valid YAML"),
        ("workload.requests=many", "workload.requests: input should be a valid integer"),
        ("sweep.9.values=[1]", "nothing is called that"),
    ],
)
def test_bad_overrides(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("distance_ttft", [override])
    assert said in str(caught.value)


def test_a_model_folder_is_kept_with_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for written in ("models/mine", "./models/mine", "~/models/mine"):
        scenario = load_scenario("smoke", [f"deployment.model={written}"])
        assert scenario.deployment.model == str(tmp_path / "models" / "mine")
