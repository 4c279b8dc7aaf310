"""Every bad input is refused with its path; every good one survives a round trip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from geokv.errors import ConfigError
from geokv.scenario import find, load_scenario, read_back

SMALL: dict[str, Any] = {
    "name": "small",
    "title": "Small",
    "question": "Is it small?",
    "topology": "pair",
    "cache": {"directory": {"kind": "central", "site": "a"}},
    "workload": {
        "kind": "shared-prefix",
        "provider": "a",
        "asker": "b",
        "prefix_tokens": 1024,
    },
    "sweep": [{"path": "links.a-b.km", "values": [0, 50], "out_of_range": [600]}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """SMALL with one thing changed; None as value takes the key out."""
    data = yaml.safe_load(yaml.safe_dump(SMALL))
    here = data
    *parents, last = path.split("/")
    for part in parents:
        here = here[int(part)] if part.isdecimal() else here.setdefault(part, {})
    if value is None:
        del here[last]
    else:
        here[last] = value
    return data


BAD = [
    ("colour", "red", "colour: unknown key"),
    ("workload/colour", "red", "workload.colour: unknown key"),
    ("title", None, "title: is required"),
    ("name", "Has Spaces", "name: "),
    ("clock", "sundial", "clock: input should be 'virtual' or 'wall', got 'sundial'"),
    ("topology", "nowhere", "no topology is named 'nowhere'"),
    ("workload/asker", "c", "workload.asker: unknown site 'c' (known: a, b)"),
    ("workload/asker", "a", "workload.asker: must differ from workload.provider, both are 'a'"),
    (
        "workload/kind",
        "poisson",
        "workload.kind: must be 'shared-prefix', 'document', 'working-set', 'stream', 'trace', "
        "got 'poisson'",
    ),
    (
        "workload/prefix_tokens",
        1000,
        "workload.prefix_tokens: must be a multiple of deployment.chunk_tokens (256), got 1000",
    ),
    ("workload/question_tokens", 9, "workload.question_tokens: must fill at least one block"),
    ("workload/requests", 0, "workload.requests: must be ≥ 1, got 0"),
    ("workload/deadline", "soon", "workload.deadline: must be a time such as"),
    (
        "deployment/chunk_tokens",
        100,
        "deployment.chunk_tokens: must be a multiple of deployment.block_tokens (16), got 100",
    ),
    ("deployment/byte_scale", 0, "deployment.byte_scale: must be ≥ 1, got 0"),
    ("deployment/dram_bytes", "64 parsecs", "deployment.dram_bytes: unknown unit 'parsecs'"),
    ("deployment/stands_for", "a gpu", "deployment.stands_for: "),
    ("deployment/compute", "real", "deployment.compute: real computing takes no time on the virt"),
    (
        "deployment",
        {"content": "synthetic", "compute": "real"},
        "deployment.content: synthetic content computes nothing whose time could be measured",
    ),
    (
        "deployment",
        {"content": "synthetic", "dtype": "bfloat16"},
        "deployment.dtype: synthetic content is bytes and no bfloat16",
    ),
    ("deployment/model", "/no/such", "deployment.model: no such folder /no/such"),
    ("cache/directory", {"kind": "gossip"}, "'gossip'"),
    ("cache/directory", {"kind": "gossip"}, "'central', 'local'"),
    ("cache/directory", {"kind": "central", "site": "q"}, "cache.directory.site: unknown site 'q'"),
    ("cache/directory/colour", 1, "cache.directory.colour: unknown key"),
    ("cache/substrate", {"kind": "pigeon"}, "cache.substrate.kind: input should be 'tcp'"),
    ("cache/substrate", {"kind": "tcp", "streams": 0}, "cache.substrate.streams: must be ≥ 1"),
    ("arms", ["recompute", "teleport"], "arms.1: input should be"),
    ("arms", ["recompute", "recompute"], "arms: recompute is listed 2 times"),
    ("sweep/0/path", "links.a-b.kn", "nothing is called links.a-b.kn; did you mean"),
    ("sweep/0/path", "links.a-c.km", "did you mean links.a-b.km"),
    ("sweep/0/path", "deployment.model", "sweep.0: deployment.model is the same in all cells"),
    ("sweep/0/path", "deployment.chunk_token", "did you mean deployment.chunk_tokens"),
    ("sweep/0/path", "seed", "sweep.0: nothing is called seed"),
    ("sweep/0/path", "cache.substrate", "nothing is called cache.substrate; did you mean"),
    (
        "sweep",
        [{"path": "deployment.chunk_tokens", "values": [256, 100]}],
        "sweep.0.values.1: deployment.chunk_tokens: must be a multiple of deployment.block_tokens",
    ),
    (
        "sweep",
        [{"name": "way", "variants": {"a": {"cache.substrate.streams": 0}}}],
        "sweep.0.variants.a: cache.substrate.streams: must be ≥ 1, got 0",
    ),
    (
        "sweep",
        [
            {"path": "links.a-b.km", "values": [1]},
            {"name": "way", "variants": {"a": {"links.a-b.km": 0}}},
        ],
        "sweep.1: links.a-b.km is swept twice",
    ),
    ("sweep", [{"values": [1]}], "sweep.0: must have either path and values, or name and"),
    ("sweep", [{"name": "way", "variants": {}}], "sweep.0: variants: each must set something"),
    ("sweep", [{"name": "way", "values": [1]}], "sweep.0: values: belong to a path"),
    ("sweep/0/values", [0, 10, -3], "sweep.0.values.2: links.a-b.km: must be ≥ 0, got -3"),
    ("sweep/0/out_of_range", [-9], "sweep.0.out_of_range.0: links.a-b.km: must be ≥ 0, got -9"),
    ("sweep/0/values", [0, 0], "sweep.0: 0 is listed 2 times"),
    ("sweep", [{"path": "links.a-b.km", "values": []}], "sweep.0: values: must not be empty"),
    ("vm", {"memory": "100MiB"}, "vm.memory: must be ≥ 1 GiB"),
    ("expect", {"remote_used": True, "colour": 1}, "expect.colour: unknown key"),
    (
        "expect",
        {"ratio_to_bound_at_most": {"limit": 1.1, "at_km": 77}},
        "expect.ratio_to_bound_at_most.at_km: no cell in range is at 77 km (cells: 0, 50)",
    ),
    (
        "expect",
        {"ratio_to_bound_at_most": {"limit": 1.1, "at_km": 600}},
        "no cell in range is at 600 km",
    ),
    (
        "expect",
        {"gain_change_percent_at_most": {"limit": 8, "up_to_km": 10}},
        "expect.gain_change_percent_at_most.up_to_km: no cell lies between 0 and 10 km",
    ),
    ("energy", {"link": {"end_w": -1}}, "energy.link.end_w"),
]


@pytest.mark.parametrize(("path", "value", "said"), BAD)
def test_bad_input_is_refused_with_its_path(path: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario(changed(path, value))
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_expectation_needs_its_arms() -> None:
    data = changed("arms", ["recompute", "remote-hit"])
    data["expect"] = {"ratio_to_bound_at_most": {"limit": 1.1, "at_km": 50}}
    with pytest.raises(ConfigError, match="ratio_to_bound_at_most: needs arm local-hit"):
        load_scenario(data)


def test_all_problems_are_named_at_once() -> None:
    data = changed("workload/asker", "c")
    data["workload"]["prefix_tokens"] = 1000
    with pytest.raises(ConfigError) as caught:
        load_scenario(data)
    assert "workload.asker" in caught.value.message
    assert "workload.prefix_tokens" in caught.value.message


def test_file_is_named_in_front_of_every_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    data = changed("topology", {"name": "p", "sites": {"a": {}, "b": {}}, "links": {}})
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError) as caught:
        load_scenario(path)
    lines = caught.value.message.split("\n")
    assert lines == [f"{path}: sites.a: no link reaches it", f"{path}: sites.b: no link reaches it"]


def test_bad_link_of_an_inline_topology_has_the_users_path() -> None:
    links = {"a-b": {"km": -3}}
    data = changed("topology", {"name": "p", "sites": {"a": {}, "b": {}}, "links": links})
    with pytest.raises(ConfigError, match=r"^links\.a-b\.km: must be ≥ 0, got -3$"):
        load_scenario(data)


def test_unknown_name_suggests_near_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        find("distance_tft")
    assert "did you mean distance_ttft" in caught.value.message
    assert "smoke" in caught.value.hint
    with pytest.raises(ConfigError, match="no scenario"):
        find("./nowhere/smoke_.yaml")


def test_topology_file_beside_the_scenario(tmp_path: Path) -> None:
    links = {"a-b": {"km": 7}}
    here = {"name": "mine", "sites": {"a": {}, "b": {}}, "links": links}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(here))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(changed("topology", "mine.yaml")))
    assert load_scenario(tmp_path / "s.yaml").topology.links["a-b"].km == 7


@pytest.mark.parametrize("name", ["distance_ttft", "distance_pagewise", "smoke"])
def test_shipped_scenarios_survive_a_round_trip(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name)
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario.to_yaml(), encoding="utf-8")
    again = read_back(path)
    assert again == scenario
    assert again.hash == scenario.hash
    assert again.to_yaml() == scenario.to_yaml()


def test_main_job_is_what_was_asked() -> None:
    scenario = load_scenario("distance_ttft")
    assert [(cell.km, cell.out_of_range) for cell in scenario.cells()] == [
        (0, False),
        (10, False),
        (25, False),
        (50, False),
        (75, False),
        (100, False),
        (600, True),
        (3000, True),
    ]
    assert scenario.workload.prefix_tokens == 8192
    assert scenario.workload.requests >= 5
    assert scenario.deployment.byte_scale == 4
    assert scenario.expect.ratio_to_bound_at_most is not None
    assert scenario.expect.ratio_to_bound_at_most.limit == 1.10


def test_pagewise_differs_only_in_how_chunks_travel() -> None:
    main, page = load_scenario("distance_ttft"), load_scenario("distance_pagewise")
    assert page.deployment.chunk_tokens == page.deployment.block_tokens == 16
    assert (page.cache.substrate.streams, page.cache.substrate.in_flight) == (1, 1)
    assert page.workload == main.workload
    assert page.expect.gain_change_percent_at_most == main.expect.gain_change_percent_at_most
    assert {cell.km for cell in page.cells()} == {0, 10, 25, 50, 75, 100}


@pytest.mark.parametrize(
    ("deployment", "exact"),
    [
        ({}, False),
        ({"content": "synthetic"}, True),
        ({"content": "synthetic", "sites": {"b": {"dram_bytes": "1GiB"}}}, True),
        ({"content": "synthetic", "sites": {"b": {"chunk_tokens": 512}}}, False),
    ],
)
def test_only_what_is_derived_and_lies_alike_is_the_same_bytes_everywhere(
    deployment: dict[str, Any], exact: bool
) -> None:
    cache = {**SMALL["cache"], "mixed": "convert"}
    scenario = load_scenario({**SMALL, "cache": cache, "deployment": deployment})
    assert scenario.deployment.exact is exact
