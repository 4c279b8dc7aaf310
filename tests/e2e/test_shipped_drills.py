"""Shipped drills pass, their controls fail where they must, and a run can be repeated.

All of them: seven minutes on two processors that do nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli import Geokv, Result
from conftest import REFERENCE, table_of

from geokv.paths import CHECKOUT
from geokv.scenario.load import load_scenario

AGAIN = ("eviction-race", "site-crash-mid-fetch")
"""With a race and a death: where a run would differ first."""
DRILLS = sorted(path.stem for path in (CHECKOUT / "scenarios" / "drills").glob("*.yaml"))
ALL_S = 3600.0
"""On a machine that others use, too."""

pytestmark = pytest.mark.timeout(2 * ALL_S)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drills")


@pytest.fixture(scope="module")
def every(geokv: Geokv, vm: None, out: Path) -> Result:
    """As many at once as there are processors."""
    return geokv("drill", *DRILLS, "--out", out, timeout=ALL_S)


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_all_drills_end_well(every: Result) -> None:
    assert every.returncode == 0, every.stdout + every.stderr


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_passes_and_its_control_fails(every: Result, out: Path, name: str) -> None:
    found = summary(out / name)
    assert found["verdict"] == "pass", found["reasons"]
    lines = found["expectations"]
    assert [line for line in lines if line["ok"] is not True] == []
    names = [line["name"] for line in lines]
    assert any(line.startswith("control:") for line in names)
    timeline = load_scenario(CHECKOUT / "scenarios" / "drills" / f"{name}.yaml").timeline
    assert {f"fault-fired:{event.title}" for event in timeline} <= set(names)


@pytest.mark.parametrize("name", DRILLS)
def test_the_table_of_a_drill(every: Result, out: Path, pinned: None, name: str) -> None:
    assert table_of(out / name) == table_of(REFERENCE / "drills" / name)


def test_the_same_seed_is_the_same_drill(geokv: Geokv, every: Result, out: Path) -> None:
    again = out / "again"
    done = geokv("drill", *AGAIN, "--out", again, timeout=ALL_S)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in AGAIN:
        first, second = (folder / name / "history.jsonl" for folder in (out, again))
        assert first.read_bytes() == second.read_bytes(), name
