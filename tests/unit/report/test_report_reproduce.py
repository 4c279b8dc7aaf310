"""The command on a page: loading it gives exactly the scenario that ran."""

from __future__ import annotations

import shlex

import pytest
from handwritten import SCENARIO

from geokv.report.page.reproduce import command
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
