"""The command on a page: loading it gives exactly the scenario that ran."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from handwritten import SCENARIO

from geokv.measure import summarise
from geokv.report.page.reproduce import command, reproduce_section
from geokv.report.sheet.blocks import Bullets
from geokv.scenario import load_scenario

RUNS = [
    ("smoke", [], "geokv run smoke"),
    ("link-cut", [], "geokv drill link-cut"),
    ("smoke", ["seed=3"], "geokv run smoke --set seed=3"),
    ("distance_ttft", ["links.a-b.km=600"], "geokv run distance_ttft --set links.a-b.km=600"),
    ("chaos", ["seed=7"], "geokv run chaos --set seed=7"),
    ("link-cut", ["timeline.0.for=250ms"], "geokv run link-cut --set timeline.0.for=0.25"),
    ("smoke", ["links.a-b.rate=400G", "cache.substrate.codec=zstd"], ""),
    ("smoke", ["arms=[recompute, remote-hit]"], ""),
]


@pytest.mark.parametrize(("name", "overrides", "line"), RUNS)
def test_the_command_loads_what_ran(name: str, overrides: list[str], line: str) -> None:
    ran = load_scenario(name, overrides)
    said = command(ran)
    assert said is not None and (said == line or not line)
    words = shlex.split(said)
    assert words[:3] == ["geokv", "run" if overrides or not ran.is_drill else "drill", name]
    settings = [text for flag, text in zip(words[3::2], words[4::2], strict=True) if flag]
    assert load_scenario(name, settings).hash == ran.hash


def test_what_no_shipped_scenario_gives_has_no_command() -> None:
    assert command(load_scenario(SCENARIO)) is None
    other = load_scenario("smoke").resolved()
    other["topology"]["sites"]["c"] = {}
    other["topology"]["links"]["b-c"] = {"km": 10.0, "kind": "apn"}
    assert command(load_scenario(other)) is None
    swept = load_scenario("smoke", ["sweep=[{path: links.a-b.km, values: [0, 5, 10]}]"])
    assert command(swept) is None


def test_code_of_one_s_own_is_named_and_its_place_is_not(tmp_path: Path, run_dir: Path) -> None:
    (tmp_path / "mine.py").write_text("class Oldest:\n    pass\n")
    ran = load_scenario("smoke", ["cache.tiers.dram.policy=mine:Oldest", f"code=['{tmp_path}']"])
    assert ran.code == [str(tmp_path)]
    assert command(ran) == "geokv run smoke --set cache.tiers.dram.policy=mine:Oldest"
    summary = summarise(run_dir)
    summary["provenance"]["code"] = [{"name": "mine:Oldest", "file": "mine.py", "blake2b": "00ff"}]
    blocks = reproduce_section(summary, run_dir).blocks
    assert Bullets(["name mine:Oldest, file mine.py, blake2b 00ff"]) in blocks
