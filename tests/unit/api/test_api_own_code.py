"""Policies and faults of the user's own: found by name, tried, and refused with the reason."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from geokv import ConfigError, Lru, Scenario, foreign
from geokv.cache.lifetime import POLICIES, check_policy, make_policy
from geokv.cache.lifetime.trial import try_policy
from geokv.coordinator.faults import Fault, fault_class
from geokv.paths import CHECKOUT
from geokv.preflight import preflight, provenance_of_code
from geokv.report.sheet.steps import describe
from geokv.report.sheet.words_en import WORDS as EN
from geokv.scenario import load_scenario, read_back
from geokv.scenario.tiers import OURS

Write = Callable[[str, str], Path]

GOOD = """
from geokv import Lru

class Mine(Lru):
    pass

class Sized:
    def __new__(cls, capacity):
        made = Lru()
        made.capacity = capacity
        return made
"""
FAULTS = """
from geokv import Evidence, Fault, now_ns

class Fog(Fault):
    kind = "fog"

    async def inject(self):
        return Evidence(now_ns(), "foggy", dict(self.event.options))

class Unfinished(Fault):
    kind = "unfinished"
"""


def test_the_scenario_knows_the_policies_there_are() -> None:
    assert set(OURS) == set(POLICIES)


@pytest.mark.parametrize("name", OURS)
def test_our_own_policies_pass_the_trial(name: str) -> None:
    try_policy(lambda capacity: make_policy(name, capacity))


def test_a_policy_by_import_path(module: Write) -> None:
    module("good_policy", GOOD)
    check_policy("good_policy:Mine")
    assert isinstance(make_policy("good_policy:Mine", 3), Lru)
    assert make_policy("good_policy:Sized", 3).capacity == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no_module_here:Mine", "", "there is no module no_module_here"),
        ("bad_a:Missing", "x = 1", r"bad_a\.py has no Missing"),
        ("bad_b:Mine", "1 / 0", r"cannot be imported: ZeroDivisionError.*bad_b\.py:1\)"),
        ("bad_c:Mine", "class Mine:\n    def added(self, key): ...", "has no method used, chained"),
        ("bad_d:Mine", "Mine = 4", "is 4, which makes no policy"),
        (
            "bad_e:Mine",
            "from geokv import Lru\nclass Mine(Lru):\n    def __init__(self, a, b): ...",
            r"cannot be made: TypeError",
        ),
        (
            "bad_f:Mine",
            "from geokv import Lru\nclass Mine(Lru):\n"
            "    def evict(self, coming, may_go):\n        return next(self.keys())",
            "evict: gave a key up although none may go",
        ),
        (
            "bad_g:Mine",
            "from geokv import Lru\nclass Mine(Lru):\n"
            "    def evict(self, coming, may_go):\n"
            "        return next((k for k in self.keys() if may_go(k)), None)",
            "keys: does not name exactly the chunks of the tier",
        ),
        (
            "bad_h:Mine",
            "from geokv import Lru\nclass Mine(Lru):\n    def used(self, key): raise KeyError(key)",
            "failed its trial: KeyError",
        ),
    ],
)
def test_a_bad_policy_is_refused_with_the_reason(
    module: Write, name: str, text: str, said: str
) -> None:
    module(name.partition(":")[0] if text else "unrelated", text)
    with pytest.raises(ConfigError, match=said) as caught:
        check_policy(name)
    assert name in caught.value.message


def test_a_file_finds_the_module_beside_it_and_a_run_folder_finds_it_again(module: Write) -> None:
    folder = module("beside_policy", GOOD)
    data = yaml.safe_load((CHECKOUT / "scenarios" / "smoke.yaml").read_text())
    data["cache"]["tiers"] = {"dram": {"policy": "beside_policy:Mine"}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(data))
    scenario = load_scenario(folder / "mine.yaml")
    assert scenario.code == [str(folder)]
    preflight(scenario)
    (found,) = provenance_of_code(scenario)
    text = (folder / "beside_policy.py").read_bytes()
    assert found == {
        "name": "beside_policy:Mine",
        "file": "beside_policy.py",
        "blake2b": hashlib.blake2b(text, digest_size=16).hexdigest(),
    }
    kept = folder / "elsewhere"
    kept.mkdir()
    (kept / "scenario.yaml").write_text(scenario.to_yaml())
    again = read_back(kept / "scenario.yaml")
    assert again == scenario
    assert again.hash == scenario.hash
    # The set-up is the same wherever the module lies; its own hash says whether that is the same.
    assert again.model_copy(update={"code": ["/somewhere/else"]}).hash == scenario.hash
    assert "code" not in load_scenario("smoke").resolved()


def test_a_shipped_scenario_finds_a_module_in_the_working_folder(
    module: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = module("working_policy", GOOD)
    monkeypatch.chdir(folder)
    scenario = load_scenario("smoke", ["cache.tiers.dram.policy=working_policy:Mine"])
    assert scenario.code == [str(folder)]
    preflight(scenario)
    assert load_scenario("smoke").code == []


def test_the_reason_comes_with_the_path_in_the_scenario(module: Write) -> None:
    folder = module("wrong_policy", "class Mine: pass")
    where = {"cache.tiers.disk.policy": "wrong_policy:Mine", "code": [str(folder)]}
    scenario = Scenario("smoke").with_(where)
    with pytest.raises(ConfigError, match=r"^cache\.tiers\.disk\.policy: eviction policy wrong_"):
        preflight(scenario.checked)
    swept = (
        Scenario("smoke")
        .with_(code=[str(folder)])
        .sweep("cache.tiers.dram.policy", ["lru", "wrong_policy:Mine"])
    )
    with pytest.raises(ConfigError, match=r"^cell a-b 0 km, policy wrong_policy:Mine: cache"):
        preflight(swept.checked)


def test_folders_the_vm_cannot_see_are_refused(tmp_path: Path) -> None:
    for folder, said in (("/dev/shm", "has a dev of its own"), (str(tmp_path / "x"), "no such")):
        with pytest.raises(ConfigError, match=said):
            Scenario("smoke").with_(code=[folder])


def test_a_class_stands_for_its_name(module: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = module("class_policy", GOOD)
    monkeypatch.syspath_prepend(str(folder))
    import class_policy  # type: ignore[import-not-found]

    scenario = Scenario("smoke").sweep("cache.tiers.dram.policy", ["lru", class_policy.Mine])
    assert scenario.cells[1]["cache.tiers.dram.policy"] == "class_policy:Mine"
    assert scenario.checked.code == [str(folder)]
    ours = Scenario("smoke").with_({"cache.tiers.dram.policy": Lru})
    assert ours.checked.cache.tiers.dram.policy == "geokv.cache.lifetime.lru:Lru"
    assert str(folder) not in ours.checked.code
    preflight(ours.checked)

    class Local(Lru):
        pass

    with pytest.raises(ConfigError, match="define it at the outermost level"):
        Scenario("smoke").with_({"cache.tiers.dram.policy": Local})
    nowhere: Any = type("Nowhere", (), {"__module__": "__main__"})
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(ConfigError, match="is in no file") as caught:
        Scenario("smoke").with_({"cache.tiers.dram.policy": nowhere})
    assert "%%writefile" in caught.value.hint


def test_an_edited_module_is_read_anew(module: Write) -> None:
    module("edited_policy", GOOD)
    check_policy("edited_policy:Mine")
    module("edited_policy", "class Mine: pass  # another length")
    with pytest.raises(ConfigError, match="has no method"):
        check_policy("edited_policy:Mine")


def test_a_script_is_not_imported_twice(tmp_path: Path) -> None:
    script = tmp_path / "own_script.py"
    script.write_text(
        "from geokv import Lru, Scenario\n"
        "from geokv.preflight import preflight\n"
        "class Mine(Lru):\n    pass\n"
        "print('run', __name__)\n"
        "scenario = Scenario('smoke').with_({'cache.tiers.dram.policy': Mine})\n"
        "preflight(scenario.checked)\n"
        "print(scenario.checked.cache.tiers.dram.policy, scenario.checked.code)\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.stdout == f"run __main__\nown_script:Mine ['{tmp_path}']\n", done.stderr


def test_a_script_that_runs_while_it_is_imported_is_stopped(module: Write) -> None:
    module("unguarded", "import geokv\ngeokv.run('smoke')\n")
    with pytest.raises(ConfigError, match="unguarded runs a scenario while it is imported"):
        foreign.load(foreign.EVICTION, "unguarded:Mine")


def _drill(**event: Any) -> Scenario:
    timeline = [{"name": "fog", "at": "1s", **event}]
    return Scenario("link-cut").with_({"control.without": ["fog"]}, timeline=timeline)


def test_a_fault_by_import_path(module: Write) -> None:
    folder = module("weather", FAULTS)
    options = {"loss": 0.02, "list": [1, 2]}
    event = {"fault": "weather:Fog", "link": "a-b", "for": "500ms", "with": options}
    scenario = _drill(**event).with_(code=[str(folder)]).checked
    (fog,) = scenario.timeline
    assert fog.heals
    assert fog.lasts_s == 0.5
    assert fog.options == options  # type: ignore[union-attr]
    preflight(scenario)
    assert issubclass(fault_class("weather:Fog"), Fault)
    assert [one["name"] for one in provenance_of_code(scenario)] == ["weather:Fog"]
    assert load_scenario(scenario.resolved()) == scenario
    assert describe(fog, EN) == "Fog at a-b (a fault of one's own), for 500 ms"
    forever = _drill(fault="weather:Fog").with_(code=[str(folder)]).checked.timeline[0]
    assert not forever.heals
    assert describe(forever, EN) == "Fog (a fault of one's own)"


def test_bad_faults_are_refused(module: Write) -> None:
    folder = module("storms", FAULTS + "\nclass Nothing:\n    pass\n")
    for name, said in (
        ("storms:Unfinished", "timeline.0.fault: fault storms:Unfinished: has no inject"),
        ("storms:Nothing", "is no subclass of geokv.Fault"),
        ("storms:Absent", "has no Absent"),
    ):
        scenario = _drill(fault=name).with_(code=[str(folder)])
        with pytest.raises(ConfigError, match=said):
            preflight(scenario.checked)
    with pytest.raises(ConfigError, match=r"timeline\.0\.link: unknown link 'a-z'"):
        _drill(fault="storms:Fog", link="a-z")
    with pytest.raises(ConfigError, match=r"timeline\.0\.strength: unknown key"):
        _drill(fault="storms:Fog", strength=3)
    with pytest.raises(ConfigError, match=r"timeline\.0\.fault: must be 'link-cut'"):
        _drill(fault="fog")
