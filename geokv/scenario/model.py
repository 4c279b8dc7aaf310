"""A scenario: what to run, on what, and what it must show. Strict, frozen, complete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.lab.topology import Topology
from geokv.scenario.cache import CacheSettings
from geokv.scenario.cells import build_cells, topology_mapping
from geokv.scenario.checks import problems
from geokv.scenario.control import Control
from geokv.scenario.deployment import Deployment
from geokv.scenario.energy import Energy
from geokv.scenario.expect import Expect
from geokv.scenario.figures import Figure
from geokv.scenario.routing import Routing
from geokv.scenario.seeds import Seed, Seeds, listed
from geokv.scenario.sweep import Cell, SweepAxis
from geokv.scenario.timeline import AnyEvent
from geokv.scenario.translation import Translation
from geokv.scenario.vm import VmSettings
from geokv.scenario.workload import OpenLoop, Workload

Arm = Literal["recompute", "local-hit", "remote-hit", "control-foreign", "control-corrupt"]
ARMS: tuple[Arm, ...] = ("recompute", "local-hit", "remote-hit")
"""Those that are run unless a scenario says otherwise."""
CONTROLS: tuple[Arm, ...] = ("control-foreign", "control-corrupt")
"""Those whose KV is planted to be wrong."""


class Scenario(Strict):
    """Everything a run needs to know; a run folder keeps it in this form.

    Raises:
        pydantic.ValidationError: use ``load_scenario`` for messages made for people.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    title: str
    question: str
    """One sentence: what the run answers."""
    topology: Topology
    clock: Literal["virtual", "wall"] = "virtual"
    seed: Seed = 1
    seeds: Seeds | None = None
    """Every point of the sweep is run with each of them: a list, or so many from ``seed`` on."""
    deployment: Deployment = Field(default_factory=Deployment)
    cache: CacheSettings
    workload: Workload
    routing: Routing = Field(default_factory=Routing)
    """Of a stream: which site serves."""
    arms: Annotated[list[Arm], Field(min_length=1)] = Field(default_factory=lambda: list(ARMS))
    sweep: list[SweepAxis] = Field(default_factory=list)
    timeline: list[AnyEvent] = Field(default_factory=list)
    """Faults of a drill, in any order."""
    energy: Energy = Field(default_factory=Energy)
    expect: Expect = Field(default_factory=Expect)
    control: Control | None = None
    """Of a drill: how it is run once more so that it must fail."""
    figures: list[Figure] = Field(default_factory=list)
    """Pictures and small tables of the sweep, beside those every run has."""
    code: list[str] = Field(default_factory=list)
    """Folders with the modules that policies and faults of one's own are named from; those beside
    the scenario's file and in the working folder are found when it is unset."""
    vm: VmSettings = Field(default_factory=VmSettings)
    translations: dict[Literal["ja"], Translation] = Field(default_factory=dict)
    """Title and question in other languages, for the sheet of a drill."""

    @model_validator(mode="after")
    def _no_contradictions(self) -> Scenario:
        found = problems(self)
        if found:
            raise ValueError("\n".join(found))
        return self

    @property
    def seed_list(self) -> list[int]:
        """The seeds that every point of the sweep is run with."""
        return listed(self.seeds, self.seed)

    def cells(self) -> list[Cell]:
        """Every point of the sweep, in the order they are run and reported; of a drill with a
        control, that last."""
        return build_cells(self)

    @property
    def is_drill(self) -> bool:
        """Whether its cells are drills: a stream of requests, faults, checkers."""
        return isinstance(self.workload, OpenLoop)

    def resolved(self) -> dict[str, Any]:
        """Plain data with every name resolved; ``load_scenario`` takes it back unchanged."""
        data = self.model_dump(mode="json", exclude_none=True, by_alias=True)
        if not self.timeline:
            # What has no drill keeps the hash it had before there were any.
            del data["timeline"]
        if not self.translations:
            del data["translations"]
        if not self.code:
            del data["code"]
        if self.routing == Routing():
            del data["routing"]
        data["topology"] = topology_mapping(self.topology)
        return data

    def to_yaml(self) -> str:
        """``resolved()`` as YAML text, for ``scenario.yaml`` in the run folder."""
        return yaml.safe_dump(self.resolved(), sort_keys=False, allow_unicode=True, width=96)

    @property
    def hash(self) -> str:
        """BLAKE2b-128 of the resolved scenario, hex; equal set-ups have equal hashes.

        Where its code lies is left out: a run's manifest has the hash of the code itself.
        """
        return hash_of(self.resolved())


def hash_of(resolved: Mapping[str, Any]) -> str:
    """``Scenario.hash`` of the keys and values that are there."""
    data = {key: value for key, value in resolved.items() if key != "code"}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
