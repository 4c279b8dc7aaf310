"""Which code of the user's own a scenario names, and where that lies."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geokv import foreign
from geokv.errors import ConfigError
from geokv.scenario.routing import OURS as ROUTING
from geokv.scenario.tiers import OURS

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

_POLICIES = {
    "cache.tiers.dram.policy": (OURS, foreign.EVICTION),
    "cache.tiers.disk.policy": (OURS, foreign.EVICTION),
    "routing.policy": (ROUTING, foreign.ROUTING),
}
"""Path → the names that are ours, and the entry point group of others."""
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


def with_homes(scenario: Scenario) -> Scenario:
    """The scenario with every folder in ``code`` where the VM must look for what it names.

    Raises:
        ConfigError: a policy that nobody has, or code where the VM cannot see it; with its place.
    """
    homes: dict[str, None] = {}
    for place, ours, group, name in _named(scenario):
        try:
            foreign.require_known(name, ours, group, scenario.code)
            if home := foreign.home(group, name, scenario.code):
                homes[home] = None
        except ConfigError as error:
            raise ConfigError(f"{place}: {error.message}", error.hint) from None
    if not homes:
        return scenario
    return scenario.model_copy(update={"code": [*scenario.code, *homes]})


def _named(scenario: Scenario) -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    """Place, names of ours, group and name, of every class in the scenario or a cell of it that
    is not ours."""
    said = [(path, path, attrgetter(path)(scenario)) for path in _POLICIES]
    for number, axis in enumerate(scenario.sweep):
        for point in axis.points():
            place = f"sweep.{number}.{axis.place(point)}"
            said += [(f"{place}: {path}", path, value) for path, value in point.changes.items()]
    if scenario.control is not None:
        said += [(f"control: {path}", path, one) for path, one in scenario.control.set.items()]
    for place, path, name in said:
        if path in _POLICIES and name not in _POLICIES[path][0]:
            yield place, *_POLICIES[path], str(name)
    for place, name in named_faults(scenario).items():
        yield place, (), "", name


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
