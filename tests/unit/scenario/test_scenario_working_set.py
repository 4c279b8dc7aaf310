"""Working sets, sizes of single sites, and what else a data-path scenario can say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from geokv.coordinator.prompts import WorkingSetPrompts
from geokv.errors import ConfigError
from geokv.lab.plan import compile_plan
from geokv.preflight import preflight
from geokv.scenario import Scenario, load_scenario
from geokv.scenario.prompts import working_order, working_prefix
from geokv.scenario.workload import WorkingSet

BASIC: dict[str, Any] = {
    "name": "shelves",
    "title": "Shelves",
    "question": "Where does it come from?",
    "topology": "pair",
    "deployment": {"content": "synthetic", "max_tokens": 40_000},
    "cache": {"directory": {"kind": "central", "site": "a"}},
    "workload": {
        "kind": "working-set", "provider": "a", "asker": "b", "prefixes": 3, "prefix_tokens": 512,
        "requests": 6, "warmup": 2, "order": "round-robin", "question_tokens": 16,
    },
}  # fmt: skip


def scenario(**changes: Any) -> Scenario:
    return load_scenario({**BASIC, **changes})


def prompts(seed: int = 1, **changes: Any) -> WorkingSetPrompts:
    return WorkingSetPrompts(WorkingSet(**{**BASIC["workload"], **changes}), seed)


def test_round_robin_goes_on_where_the_warm_up_ended() -> None:
    made = prompts()
    asked = [made.question(0, n, True) for n in range(2)]
    asked += [made.question(0, n, False) for n in range(6)]
    prefixes = [made.preparing(0, n)[:512] for n in range(3)]
    assert [prefixes.index(tokens[:512]) for tokens in asked] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert len({tuple(tokens) for tokens in asked}) == 8
    assert {len(tokens) for tokens in asked} == {made.longest} == {528}


def test_every_cell_asks_the_same_order_with_other_questions() -> None:
    made = prompts(order="zipf")
    first, second = made.question(0, 3, False), made.question(1, 3, False)
    assert first[:512] == second[:512] and first[512:] != second[512:]


def test_zipf_draws_by_rank_and_by_seed() -> None:
    order = working_order(5, 4, 40_000, "zipf", 1.0)
    assert order == working_order(5, 4, 40_000, "zipf", 1.0)
    assert order != working_order(6, 4, 40_000, "zipf", 1.0)
    counts = Counter(order)
    weights = [1, 1 / 2, 1 / 3, 1 / 4]
    for rank, weight in enumerate(weights):
        assert counts[rank] / 40_000 == pytest.approx(weight / sum(weights), abs=0.01)
    even = Counter(working_order(5, 4, 40_000, "zipf", 0.0))
    assert max(even.values()) - min(even.values()) < 1000


def test_prefixes_differ_in_their_first_ids() -> None:
    starts = {tuple(working_prefix(1, number, 64, 256)[:8]) for number in range(500)}
    assert len(starts) == 500
    with pytest.raises(ValueError, match="numbered"):
        working_prefix(1, 0, 7, 256)


def test_a_working_set_has_no_controls() -> None:
    with pytest.raises(ConfigError, match="control-foreign has no single prefix"):
        scenario(arms=["recompute", "remote-hit", "control-foreign"])


def test_a_site_can_have_sizes_of_its_own() -> None:
    one = scenario(deployment={**BASIC["deployment"], "sites": {"a": {"dram_bytes": "1GiB"}}})
    sizes = [one.deployment.at(site).dram_bytes for site in ("a", "b")]
    assert sizes == [2**30, 64 * 2**30]
    assert one.deployment.at("a").device_bytes == 40 * 2**30
    with pytest.raises(ConfigError, match=r"deployment.sites.c: unknown site"):
        scenario(deployment={"sites": {"c": {}}})


def test_a_site_too_small_for_one_request_is_named() -> None:
    small = {**BASIC["deployment"], "sites": {"b": {"device_bytes": "16MiB"}}}
    with pytest.raises(ConfigError) as caught:
        preflight(scenario(deployment=small))
    assert caught.value.message.startswith("deployment.sites.b.device_bytes: 16 MiB is too small")


def test_synthetic_content_is_as_long_as_it_is_told() -> None:
    long = {**BASIC["workload"], "prefix_tokens": 32_768}
    preflight(scenario(workload=long))
    with pytest.raises(ConfigError, match="takes 16384"):
        preflight(scenario(workload=long, deployment={"content": "synthetic"}))
    with pytest.raises(ConfigError, match=r"max_tokens: geokv-tiny takes what it takes"):
        scenario(deployment={"max_tokens": 40_000})


def test_idle_restart_is_a_setting_of_both_ends() -> None:
    forgets = scenario().topology.with_link("a-b", idle_restart=True)
    for topology, expected in ((scenario().topology, 0), (forgets, 1)):
        plan = compile_plan(topology)
        found = [plan.tcp[site].slow_start_after_idle for site in ("a", "b")]
        assert [*found, plan.links["a-b"].tcp.slow_start_after_idle] == [expected] * 3


@pytest.mark.parametrize("name", ["granularity", "break_even", "tcp", "tiers"])
def test_shipped_data_path_scenarios_fit(name: str) -> None:
    shipped = load_scenario(name)
    preflight(shipped)
    assert shipped.figures and shipped.expect.changes
