"""The one command that does a run again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import yaml

from geokv.errors import GeokvError
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Code, Fold, Para
from geokv.report.sheet.words import words_of
from geokv.scenario import Scenario, find, load_scenario, read_back

_MOST_SETTINGS = 12
_MOST_LINES = 600


def reproduce_section(summary: dict[str, Any], run_dir: Path) -> Section:
    """The command, and the scenario it runs with every name resolved."""
    scenario = read_back(run_dir / "scenario.yaml")
    versions = summary["provenance"]["versions"]
    line = command(scenario)
    said = (
        "It loads exactly what ran: the shipped scenario of this name with these settings has the "
        f"same hash, {scenario.hash[:8]}."
    )
    if line is None:
        line = "geokv run ./scenario.yaml"
        said = "In the run folder, or beside the scenario below, saved under this name."
    blocks: list[Block] = [
        *([Para(words_of("en").text["repeat_by_hand"])] if summary.get("by_hand") else []),
        Code([line]),
        Para(f"{said} geokv {versions['geokv']}, torch {versions.get('torch', 'none')}."),
    ]
    if code := summary["provenance"].get("code"):
        blocks.append(Para("It needs code of the user's own, in the folder it is started in:"))
        blocks.append(Bullets([", ".join(f"{key} {one[key]}" for key in one) for one in code]))
    text = (run_dir / "scenario.yaml").read_text(encoding="utf-8").splitlines()
    if len(text) <= _MOST_LINES:
        blocks.append(Fold("scenario.yaml, with every name resolved", [Code(text)]))
    return Section("reproduce", "How to reproduce it", blocks)


def command(scenario: Scenario) -> str | None:
    """``geokv run NAME --set …`` from the shipped scenario; None where none gives this one.

    A command is returned only when loading it has given a scenario with the same hash.
    """
    try:
        file = find(scenario.name)
        shipped = load_scenario(file)
    except GeokvError:
        return None
    if shipped.hash == scenario.hash:
        # Scenarios that are run like drills and are none lie with the others.
        return f"geokv {'drill' if file.parent.name == 'drills' else 'run'} {scenario.name}"
    overrides = _differences(shipped, scenario)
    if not 0 < len(overrides) <= _MOST_SETTINGS:
        return None
    try:
        again = load_scenario(file, overrides)
    except GeokvError:
        return None
    if again.hash != scenario.hash:
        return None
    settings = " ".join(f"--set {shlex.quote(one)}" for one in overrides)
    return f"geokv run {scenario.name} {settings}"


def _differences(shipped: Scenario, ran: Scenario) -> list[str]:
    """``path=value`` of everything that was set."""
    found = {}
    before, after = _leaves(shipped.resolved()), _leaves(ran.resolved())
    for path, value in after.items():
        if before.get(path) != value:
            found[path.removeprefix("topology.")] = value
    # Where code of one's own lies is no part of what ran, and nowhere else the same.
    found = {path: one for path, one in found.items() if path.split(".")[0] != "code"}
    # What was read from a file is read from it again.
    found = {path: one for path, one in found.items() if path != "workload.file.content"}
    # A swept path that is set keeps one value, and stays an axis.
    if found.pop("sweep", None) is not None:
        for axis in ran.sweep:
            values = [*axis.values, *axis.out_of_range]
            if axis.path is not None and len(values) == 1:
                found[axis.path] = values[0]
    if "seed" in found:
        # What a seed draws is not set by hand.
        found = {path: one for path, one in found.items() if not path.startswith("timeline")}
    return [f"{path}={_written(value)}" for path, value in found.items()]


def _leaves(data: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Dotted path → what is no mapping. Events of a timeline have numbers; a sweep is one value."""
    leaves: dict[str, Any] = {}
    for name, value in data.items():
        path = f"{place}{name}"
        if path == "timeline":
            value = dict(enumerate(value))
        if isinstance(value, dict) and value:
            leaves.update(_leaves(value, f"{path}."))
        else:
            leaves[path] = value
    return leaves


def _written(value: Any) -> str:
    """As ``--set`` reads it back."""
    if isinstance(value, str) and _plain(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> bool:
    """Whether YAML reads it as itself."""
    try:
        return bool(yaml.safe_load(text) == text)
    except yaml.YAMLError:
        return False
