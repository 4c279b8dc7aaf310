"""What can be started: the scenarios and drills that are at hand, checked before they are run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.drills.find import shipped_drills
from geokv.errors import ConfigError, GeokvError
from geokv.lab.profiles import data_folders
from geokv.preflight import preflight
from geokv.scenario import Scenario, load_scenario
from geokv.vm.pace import check_pace, parse_pace


class Wish(Strict):
    """What the page asks to start."""

    scenario: Annotated[str, Field(max_length=64)]
    """A name of the catalogue, never a path."""
    clock: Literal["virtual", "wall"] | None = None
    pace: Annotated[str, Field(max_length=16)] | None = None
    live: bool = False
    """Samples and commands without a pace, as on the wall clock; a pace has them anyway."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    set: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=50)] = Field(
        default_factory=list
    )
    """``path=value`` each."""

    def overrides(self) -> list[str]:
        """All that differs from the file, as ``--set`` takes it."""
        found = list(self.set)
        if self.clock is not None:
            found.append(f"clock={self.clock}")
        if self.seed is not None:
            found.append(f"seed={self.seed}")
        return found


@dataclass(frozen=True)
class Checked:
    """A wish that can be run."""

    scenario: Scenario
    arguments: list[str]
    """Of ``geokv run``, without where its folder lies."""


def files() -> dict[str, Path]:
    """Name → file of all that can be started, scenarios before drills."""
    found: dict[str, Path] = {}
    for folder in data_folders("scenarios"):
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return found | {name: path for name, path in shipped_drills().items() if name not in found}


def catalogue() -> list[dict[str, Any]]:
    """Name, kind, title, question and size of each; one that is broken says why.

    Takes some seconds at first: every file is loaded as a run would load it.
    """
    return [_entry(name, path, path.stat().st_mtime_ns) for name, path in files().items()]


@lru_cache(maxsize=1024)
def _entry(name: str, path: Path, stamp: int) -> dict[str, Any]:
    """Kept for as long as the file is what it was, which ``stamp`` tells."""
    entry: dict[str, Any] = {
        "name": name,
        "kind": "scenario",
        "title": "",
        "question": "",
        "error": "",
    }
    try:
        scenario = load_scenario(path)
    except GeokvError as error:
        return entry | {"error": error.message}
    return entry | {
        "kind": "drill" if scenario.is_drill else "scenario",
        "title": scenario.title,
        "question": scenario.question,
        "clock": scenario.clock,
        "seed": scenario.seed,
        **size_of(scenario),
    }


def size_of(scenario: Scenario) -> dict[str, Any]:
    """How much a run of it is."""
    cells = len(scenario.cells())
    arms = 1 if scenario.is_drill else len(scenario.arms)
    return {
        "topology": scenario.topology.name,
        "sites": len(scenario.topology.sites),
        "links": len(scenario.topology.links),
        "cells": cells,
        "requests": cells * arms * scenario.workload.requests,
    }


def check(wish: Wish) -> Checked:
    """Load it as the run will, and ask the rooms below what a run asks them before it begins.

    Raises:
        ConfigError: nothing is called that, or a value is refused; one line per problem.
    """
    if wish.scenario not in files():
        raise ConfigError(f"no scenario {wish.scenario!r}", "choose one of the list")
    overrides = wish.overrides()
    scenario = load_scenario(wish.scenario, overrides)
    preflight(scenario)
    if wish.pace is not None:
        check_pace(parse_pace(wish.pace), scenario.clock)
    arguments = [wish.scenario]
    for text in overrides:
        arguments.append(f"--set={text}")
    if wish.pace is not None:
        arguments.append(f"--pace={wish.pace}")
    if wish.live and wish.pace is None:
        arguments.append("--live")
    return Checked(scenario, arguments)
