"""Which code of the user's own a scenario names, and where that lies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geokv import foreign
from geokv.scenario.routing import OURS as ROUTING
from geokv.scenario.tiers import OURS

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

_SAID = ("title", "question", "translations", "workload")
"""Parts of a scenario that hold words for people or models."""


def named_policies(scenario: Scenario) -> dict[str, str]:
    """Path → name of every eviction policy that is not ours."""
    tiers = scenario.cache.tiers
    named = {
        "cache.tiers.dram.policy": tiers.dram.policy,
        "cache.tiers.disk.policy": tiers.disk.policy,
    }
    return {path: name for path, name in named.items() if name not in OURS}


def named_routing(scenario: Scenario) -> str | None:
    """The routing policy, where it is not ours."""
    policy = scenario.routing.policy
    return None if policy in ROUTING else policy


def named_faults(scenario: Scenario) -> dict[str, str]:
    """Path → ``module:Class`` of every fault that is not ours."""
    return {
        f"timeline.{number}.fault": event.fault
        for number, event in enumerate(scenario.timeline)
        if foreign.is_reference(event.fault)
    }


def with_code(data: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """The mapping of a scenario with the folders of its code, as whole paths.

    A ``module:Class`` without a folder is looked for beside the scenario's file, then in the
    working folder.
    """
    beside = (folder or Path()).resolve()
    given = data.get("code")
    if given is None:
        modules = [name.partition(":")[0].partition(".")[0] for name in _references(data)]
        given = [
            str(place)
            for place in dict.fromkeys((beside, Path.cwd()))
            if any((place / f"{name}.py").is_file() or (place / name).is_dir() for name in modules)
        ]
        if not given:
            return data
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        return data
    return {**data, "code": [str((beside / Path(one).expanduser()).resolve()) for one in given]}


def _references(data: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(data, str) and foreign.is_reference(data):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            if depth or key not in _SAID:
                yield from _references(value, depth + 1)
    elif isinstance(data, list):
        for value in data:
            yield from _references(value, depth + 1)
