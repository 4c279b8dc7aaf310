"""What can be started: the scenarios and drills that are at hand, checked before they are run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.drills.find import shipped_drills
from geokv.errors import ConfigError, GeokvError
from geokv.lab.profiles import data_folders
from geokv.scenario import Scenario, load_scenario


class Wish(Strict):
    """What the page asks to start."""

    scenario: Annotated[str, Field(max_length=64)]
    """A name of the catalogue, never a path."""
    clock: Literal["virtual", "wall"] | None = None
    pace: Annotated[str, Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,3})?x$")] | None = None
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


@cache
def names() -> dict[str, str]:
    """Name → ``scenario`` or ``drill``, of all that can be started."""
    scenarios = {
        path.stem for folder in data_folders("scenarios") for path in folder.glob("*.yaml")
    }
    drills = shipped_drills()
    found = {name: "scenario" for name in sorted(scenarios)}
    return found | {name: "drill" for name in drills if name not in found}


@cache
def catalogue() -> list[dict[str, Any]]:
    """Name, kind, title, question and size of each; one that is broken says why.

    Takes about a second: every file is loaded as a run would load it.
    """
    return [_entry(name, kind) for name, kind in names().items()]


def _entry(name: str, kind: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "kind": kind, "title": "", "question": "", "error": ""}
    try:
        scenario = load_scenario(name)
    except GeokvError as error:
        return entry | {"error": error.message}
    return entry | {
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
    """Load it as the run will.

    Raises:
        ConfigError: nothing is called that, or a value is refused; one line per problem.
    """
    if wish.scenario not in names():
        raise ConfigError(f"no scenario {wish.scenario!r}", "choose one of the list")
    overrides = wish.overrides()
    scenario = load_scenario(wish.scenario, overrides)
    if wish.pace is not None and scenario.clock != "virtual":
        raise ConfigError("pace: only the virtual clock has one; the wall clock is real time")
    arguments = [wish.scenario]
    for text in overrides:
        arguments.append(f"--set={text}")
    if wish.pace is not None:
        arguments.append(f"--pace={wish.pace}")
    return Checked(scenario, arguments)
