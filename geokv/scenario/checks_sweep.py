"""Checks of a scenario's sweep and of the figures drawn from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from geokv.lab.topology import Link
from geokv.scenario.figures import axes_of
from geokv.scenario.paths import known_paths, suggest
from geokv.scenario.sweep import Value

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

ONE_PER_RUN = frozenset(
    {
        "deployment.model",
        "deployment.stands_for",
        "deployment.content",
        "deployment.dtype",
        "workload.kind",
        "workload.provider",
        "workload.asker",
        "workload.requests",
        "workload.warmup",
        "workload.file.file",
        "workload.file.content",
        "workload.cell",
        "workload.skip",
        "workload.take",
    }
)
"""What all cells of a run share: what ran, what it stands for, who asks and how often. Lines of a
trace are chosen when it is read."""


def sweep_problems(scenario: Scenario) -> list[str]:
    """Every contradiction of axes and figures, as ``path: what is wrong``."""
    return [*_sweep(scenario), *_figures(scenario)]


def _sweep(scenario: Scenario) -> list[str]:
    found = []
    leaves = sweepable(scenario)
    seen: set[str] = set()
    titles: set[str] = set()
    for number, axis in enumerate(scenario.sweep):
        place = f"sweep.{number}"
        if axis.title in titles:
            found.append(f"{place}: two axes are called {axis.title}")
        titles.add(axis.title)
        for path in axis.paths:
            if path in seen:
                found.append(f"{place}: {path} is swept twice")
            seen.add(path)
            if path in ONE_PER_RUN:
                found.append(
                    f"{place}: {path} is the same in all cells of a run; set it with --set and "
                    "run again"
                )
            elif path not in leaves:
                found.append(f"{place}: nothing is called {path}{suggest(path, leaves)}")
        for value, times in repeated(point.shown for point in axis.points()).items():
            found.append(f"{place}: {value} is listed {times} times")
    return found


def _figures(scenario: Scenario) -> list[str]:
    """A figure must show every axis: two cells must never lie on one another."""
    found = []
    titles = [axis.title for axis in scenario.sweep]
    names: set[str] = set()
    for number, figure in enumerate(scenario.figures):
        place = f"figures.{number}"
        if figure.name in names:
            found.append(f"{place}.name: two figures are called {figure.name}")
        names.add(figure.name)
        shown = axes_of(figure)
        twice = repeated(shown.values())
        for key, axis in shown.items():
            if axis not in titles:
                found.append(f"{place}.{key}: no axis is called {axis}{suggest(axis, titles)}")
            if axis in twice:
                found.append(f"{place}.{key}: {axis} is shown twice")
        left = [title for title in titles if title not in shown.values()]
        if left:
            found.append(f"{place}: does not show {', '.join(left)}")
    return found


def repeated(values: Iterable[Value]) -> dict[Value, int]:
    """What is there more than once, and how often."""
    return {value: times for value, times in Counter(values).items() if times > 1}


def sweepable(scenario: Scenario) -> list[str]:
    """Every path a sweep may change."""
    parts = {
        "links": {link: dict.fromkeys(Link.model_fields) for link in scenario.topology.links},
        "deployment": scenario.deployment.model_dump(),
        "cache": scenario.cache.model_dump(),
        "workload": scenario.workload.model_dump(),
        "routing": scenario.routing.model_dump(),
        "timeline": {
            event.title: event.model_dump(by_alias=True, exclude={"fault", "name", "expect"})
            for event in scenario.timeline
        },
    }
    known = list(known_paths(parts))
    inner = {path.rsplit(".", 1)[0] for path in known}
    return [path for path in known if path not in inner and path not in ONE_PER_RUN]
