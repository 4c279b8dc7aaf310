"""Policies that packages register by name, and code that only the host's Python looks for."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from geokv import ConfigError, Scenario, foreign
from geokv.cache.lifetime import check_policy
from geokv.paths import CHECKOUT
from geokv.preflight import preflight, provenance_of_code
from geokv.scenario import load_scenario, read_back

DRAM = "cache.tiers.dram.policy"
MODULE = """
from geokv import Lru

class Mine(Lru):
    pass

class Near:
    def __init__(self, door, sites):
        self.door = door

    def choose(self, request, sites):
        return self.door
"""
POINTS = """
[geokv.eviction]
newest = packaged_policy:Mine

[geokv.routing]
near = packaged_policy:Near
"""


def package(folder: Path) -> Path:
    """What ``pip install --target`` leaves of a package with one module."""
    (folder / "packaged_policy.py").write_text(MODULE)
    info = folder / "packaged-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    return folder


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """A folder with the package, in which nothing looks yet."""
    yield package(tmp_path)
    foreign.use_folders([])
    sys.modules.pop("packaged_policy", None)


@pytest.mark.parametrize("how", ["path", "code"])
def test_a_policy_is_known_by_its_registered_name(
    packages: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: dict[str, Any] = {DRAM: "newest"}
    if how == "path":
        monkeypatch.syspath_prepend(str(packages))
    else:
        wanted["code"] = [str(packages)]
    scenario = Scenario("smoke").with_(wanted).checked
    # The VM's Python has no such path; what the scenario names is found in both.
    assert scenario.code == [str(packages)]
    assert scenario.hash == Scenario("smoke").with_(wanted).checked.hash
    preflight(scenario)
    check_policy("newest")
    (found,) = provenance_of_code(scenario)
    assert (found["name"], found["file"]) == ("newest", "packaged_policy.py")
    assert found["package"] == "packaged 1.2"


def test_a_name_nobody_has_is_refused_where_it_stands(packages: Path) -> None:
    said = "must be lru, fifo, lfu, s3fifo, newest or module:Class, got 'oldest'"
    code = [str(packages)]
    base = Scenario("smoke").with_(code=code)
    places: list[tuple[Callable[[], Scenario], str]] = [
        (lambda: base.with_({DRAM: "oldest"}), f"{DRAM}: "),
        (lambda: base.sweep(DRAM, ["newest", "oldest"]), f"sweep.1.values.1: {DRAM}: "),
        (
            lambda: base.sweep("who", {"mine": {DRAM: "newest"}, "his": {DRAM: "oldest"}}),
            f"sweep.1.variants.his: {DRAM}: ",
        ),
        (
            lambda: Scenario("link-cut").with_({"control.set": {DRAM: "oldest"}, "code": code}),
            f"control: {DRAM}: ",
        ),
    ]
    for make, place in places:
        with pytest.raises(ConfigError) as caught:
            make()
        assert place + said in caught.value.message
        assert "PYTHONPATH" in caught.value.hint
    with pytest.raises(ConfigError, match=r"routing\.policy: must be asker, .*near or module"):
        Scenario("link-cut").with_({"routing.policy": "newest", "code": code})
    with pytest.raises(ConfigError, match="must be lru, fifo, lfu, s3fifo or module:Class"):
        Scenario("smoke").with_({DRAM: "not a name"})


def test_what_a_sweep_or_a_control_names_has_its_folder_too(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(packages))
    swept = Scenario("smoke").sweep(DRAM, ["lru", "newest"]).checked
    weak = Scenario("link-cut").with_({"control.set": {DRAM: "packaged_policy:Mine"}}).checked
    routed = Scenario("link-cut").with_({"routing.policy": "near"}).checked
    for scenario in (swept, weak, routed):
        assert scenario.code == [str(packages)]
        preflight(scenario)
        assert all(cell.scenario.code == [str(packages)] for cell in scenario.cells())


def test_a_run_folder_is_read_where_the_package_is_not(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.syspath_prepend(str(packages))
        scenario = load_scenario("smoke", [f"{DRAM}=newest"])
    kept = tmp_path / "kept"
    kept.mkdir()
    text = yaml.safe_dump({**scenario.resolved(), "code": []})
    (kept / "scenario.yaml").write_text(text)
    assert read_back(kept / "scenario.yaml").cache.tiers.dram.policy == "newest"
    assert read_back(kept / "scenario.yaml").hash == scenario.hash
    with pytest.raises(ConfigError, match="must be lru"):
        load_scenario(kept / "scenario.yaml")


def test_a_module_that_only_the_hosts_python_finds_has_its_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "on_the_path" / "my_package"
    inside.mkdir(parents=True)
    (inside / "__init__.py").touch()
    (inside / "policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(inside.parent))
    scenario = load_scenario("smoke", [f"{DRAM}=my_package.policies:Mine"])
    assert scenario.code == [str(inside.parent)]
    preflight(scenario)
    # With its folder in `code` it is found there, and nothing is added.
    named = Scenario("smoke").with_({DRAM: "my_package.policies:Mine", "code": [str(tmp_path)]})
    assert named.checked.code == [str(tmp_path), str(inside.parent)]
    again = Scenario(named.checked.resolved())
    assert again.checked.code == named.checked.code


def test_code_the_vm_cannot_see_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as hidden:
        package(Path(hidden))
        monkeypatch.syspath_prepend(hidden)
        for path, name in ((DRAM, "newest"), (DRAM, "packaged_policy:Mine")):
            with pytest.raises(ConfigError) as caught:
                Scenario("smoke").with_({path: name})
            said = f"{path}: {name} lies in {hidden}, where the VM cannot see it: it has a dev"
            assert said in caught.value.message


def test_a_package_that_is_seen_and_whose_module_is_not_is_refused(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an editable package is: installed in one place, its files in another."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as hidden:
        shutil.move(packages / "packaged_policy.py", hidden)
        monkeypatch.syspath_prepend(hidden)
        scenario = Scenario("smoke").with_({DRAM: "newest", "code": [str(packages)]}).checked
        preflight(scenario)
        with pytest.raises(ConfigError, match=r"newest: the VM cannot see /dev/shm/.*policy\.py"):
            provenance_of_code(scenario)


def test_the_vm_has_what_is_installed_and_geokv_itself() -> None:
    for path in (torch.__file__, os.__file__, CHECKOUT / "geokv" / "units.py", pytest.__file__):
        assert foreign.guest_has(Path(path)), path
    for path in (CHECKOUT / "scenarios" / "policy.py", "/srv/mine.py", "/tmp/packages"):
        assert not foreign.guest_has(Path(path)), path
    # An installed package: nothing has to be told of it.
    assert foreign.home("console_scripts", "pytest", []) is None
    assert foreign.home("", "yaml:SafeLoader", []) is None
    assert foreign.home("", "json:JSONEncoder", []) is None
    assert foreign.home("", "geokv.cache.lifetime.lru:Lru", []) is None
    assert foreign.home("", "no_such_module:Thing", []) is None
