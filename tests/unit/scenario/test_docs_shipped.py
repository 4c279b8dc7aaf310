"""The table of shipped scenarios names each of them, with its number of cells."""

from __future__ import annotations

import re
from pathlib import Path

from geokv.scenario import load_scenario

CHECKOUT = Path(__file__).resolve().parents[3]


def test_every_shipped_scenario_is_in_the_table() -> None:
    doc = (CHECKOUT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    section = doc.split("\n## Scenarios that come with geokv\n", 1)[1].split("\n## ", 1)[0]
    listed = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", section, re.MULTILINE))
    shipped = sorted(path.stem for path in (CHECKOUT / "scenarios").glob("*.yaml"))
    assert sorted(listed) == shipped
    for name, cells in listed.items():
        assert len(load_scenario(name).cells()) == int(cells), name
