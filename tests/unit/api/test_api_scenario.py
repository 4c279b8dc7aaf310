"""Scenarios built and changed in code go through the same strict checks as files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handwritten import SCENARIO

import geokv
from geokv import ConfigError, Scenario
from geokv.scenario import load_scenario


def modules_after(statement: str) -> set[str]:
    """What a new interpreter has imported after it."""
    script = f"{statement}; import sys; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_importing_geokv_imports_next_to_nothing() -> None:
    script = (
        "import sys, geokv; geokv.GeokvError; "
        "print(sorted({'torch', 'pandas', 'numpy', 'pydantic', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr
    script = "import sys; from geokv import Scenario, run, load_run; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr


def test_every_public_name_is_there_and_documented() -> None:
    for name in geokv.__all__:
        value = getattr(geokv, name)
        # What is said of an alias is only in its module, and the reference shows it.
        assert value.__doc__ or name == "MayGo", name
        assert name in dir(geokv)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = geokv.Nonsense


def test_by_name_by_file_and_by_mapping_are_the_same(tmp_path: Path) -> None:
    named = Scenario("smoke")
    saved = named.save(tmp_path / "mine.yaml")
    assert Scenario(saved) == named
    assert Scenario(named.checked.resolved()) == named
    assert named.hash == load_scenario("smoke").hash
    assert named.cells == [{"links.a-b.km": 0}, {"links.a-b.km": 50}]
    assert not named.is_drill
    assert Scenario("link-cut").cells[-1] == {"control": True}


def test_with_changes_a_copy() -> None:
    before = Scenario("smoke")
    after = before.with_({"links.a-b.rate": "40G", "deployment.byte_scale": 8}, seed=7)
    assert (after.checked.seed, before.checked.seed) == (7, 1)
    assert after.checked.topology.links["a-b"].rate == 40_000_000_000
    assert before.checked.topology.links["a-b"].rate != 40_000_000_000
    assert after != before
    again = after.with_(seed=8)
    assert again.checked.deployment.byte_scale == 8
    assert again.checked.seed == 8
    assert after.checked == load_scenario(
        "smoke", ["links.a-b.rate=40G", "deployment.byte_scale=8", "seed=7"]
    )


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("links.a-b.km", -3, r"^links\.a-b\.km: must be ≥ 0, got -3"),
        (
            "links.a-b.kmm",
            3,
            r"links\.a-b\.kmm: nothing is called that; did you mean links\.a-b\.km",
        ),
        (
            "deployment.block_tokens",
            17,
            r"^deployment\.chunk_tokens: must be a multiple of deployment.block_tokens",
        ),
        ("cache.tiers.dram.policy", "lruu", "must be lru, fifo, lfu, s3fifo or module:Class"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(path: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Scenario("smoke").with_({path: value})


def test_a_scenario_of_a_scenario_is_the_same() -> None:
    one = Scenario("smoke").with_(seed=7)
    same = Scenario(one)
    assert same == one
    assert same.with_({"links.a-b.rate": "40G"}).checked.seed == 7


@pytest.mark.parametrize("what", [None, 5, ["smoke"]])
def test_what_is_no_scenario_is_refused(what: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no scenario\n.*give a name"):
        Scenario(what)


@pytest.mark.parametrize("changes", [["a"], "seed", 7, {5: 1}])
def test_changes_that_are_no_mapping_of_paths_are_refused(changes: Any) -> None:
    with pytest.raises(ConfigError, match="a mapping of path to value, got"):
        Scenario("smoke").with_(changes)


@pytest.mark.parametrize("values", [5, "0,10", None, np.array(5)])
def test_a_sweep_over_no_list_is_refused(values: Any) -> None:
    said = r"sweep links\.a-b\.km: must be a list of values, got"
    with pytest.raises(ConfigError, match=said):
        Scenario("smoke").sweep("links.a-b.km", values)
    with pytest.raises(ConfigError, match=said):
        Scenario("smoke").sweep("links.a-b.km", [0], out_of_range=values)


def test_a_mistake_is_blamed_on_the_file_only_where_it_is_one_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    Scenario("smoke").save(path)
    with pytest.raises(ConfigError, match=r"^seed: "):
        Scenario(path).with_(seed="x")
    with pytest.raises(ConfigError, match=r"^seed: "):
        load_scenario(path, ["seed=x"])
    path.write_text(path.read_text().replace("seed: 1", "seed: x"))
    with pytest.raises(ConfigError, match=r"mine\.yaml: seed: "):
        load_scenario(path, ["deployment.byte_scale=8"])


def test_sweeps_are_added_replaced_and_checked() -> None:
    one = Scenario("smoke").sweep("links.a-b.km", np.array([0, 10]), out_of_range=[900])
    assert one.cells == [{"links.a-b.km": km} for km in (0, 10, 900)]
    two = one.sweep("links.a-b.rate", ["10G", "40G"])
    assert len(two.cells) == 6
    assert two.cells[1] == {"links.a-b.km": 0, "links.a-b.rate": "40G"}
    ways = {
        "one": {"cache.substrate.streams": 1, "cache.substrate.in_flight": 1},
        "many": {"cache.substrate.streams": 4, "cache.substrate.in_flight": 4},
    }
    three = Scenario("smoke").with_(sweep=[]).sweep("transfer", ways)
    assert three.cells == [{"transfer": "one"}, {"transfer": "many"}]
    with pytest.raises(ConfigError, match=r"nothing is called links\.a-b\.kilometres"):
        one.sweep("links.a-b.kilometres", [1])
    with pytest.raises(ConfigError, match=r"sweep\.0\.values\.1: links\.a-b\.km: must be ≥ 0"):
        one.sweep("links.a-b.km", [0, -1])


def test_a_notebook_shows_what_it_consists_of() -> None:
    shown = Scenario({**SCENARIO, "title": "5 < 6 & more"})._repr_html_()
    assert "5 &lt; 6 &amp; more" in shown
    assert "a-b 50 km, apn" in shown
    assert "0, 50, 100, 600" in shown
    assert repr(Scenario("smoke")) == "<Scenario smoke: 2 cells, 3 arms, 2 requests each>"
    assert "cut" in Scenario("link-cut")._repr_html_()


def test_a_scenario_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        Scenario("smoke").save(tmp_path / "no" / "such" / "folder.yaml")
