"""Shipped drills: each loads, says where it comes from, promises something, and can fail."""

import re

import pytest

from geokv.coordinator.faults import fault_class
from geokv.paths import CHECKOUT
from geokv.scenario.load import load_scenario
from geokv.site.sabotage import check_sabotage

DRILLS = sorted((CHECKOUT / "scenarios" / "drills").glob("*.yaml"))


@pytest.mark.parametrize("path", DRILLS, ids=lambda path: path.stem)
def test_a_shipped_drill_is_whole(path):
    drill = load_scenario(path)
    assert drill.is_drill and drill.name == path.stem
    for event in drill.timeline:
        fault_class(event.fault)
    if drill.control is None:
        pytest.fail("a drill that cannot fail proves nothing")
    if drill.control.sabotage is not None:
        check_sabotage(drill.control.sabotage)
    promised = any(event.expect.model_dump(exclude_none=True) for event in drill.timeline)
    assert promised or drill.expect.drill is not None


@pytest.mark.parametrize("path", DRILLS, ids=lambda path: path.stem)
def test_its_header_says_what_it_is_about(path):
    header = "".join(re.findall(r"^#.*\n", path.read_text(), re.MULTILINE))
    for part in ("In the world", "What must hold", "Look at", f"geokv drill {path.stem}"):
        assert part in header


def test_the_page_of_drills_names_all_of_them():
    page = (CHECKOUT / "docs" / "drills.md").read_text()
    named = re.findall(r"^\| ([a-z][a-z0-9-]+) \|", page, re.MULTILINE)
    assert sorted(set(named) - {"drill"}) == [p.stem for p in DRILLS if p.stem != "chaos"]
