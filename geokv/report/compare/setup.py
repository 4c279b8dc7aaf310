"""Were two runs set up alike? Only then is a difference between them one of what was changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from geokv.measure.comparing.sampled import SampledRun

_SAID_ONLY = (
    "name", "title", "question", "translations", "figures", "expect", "vm", "seed", "seeds",
)  # fmt: skip
"""Keys of a scenario that change what is said of a run, or in how many VMs it runs, and no number
of it. Seeds are compared as those that were run."""
_MANIFEST = ("kernel", "profile", "sabotage", "live", "code")
"""A live run is looked at while it goes on, which costs µs; a pace alone costs nothing."""
_RATE = re.compile(r"(links|timeline)\..+\.rate|.+\.disk\.(read|write)|.+_caps\..+")
"""Paths of what is in bit/s; ``workload.rate`` is not."""


@dataclass(frozen=True)
class Differs:
    """One value that two set-ups do not share; None is one that is not there."""

    path: str
    base: Any
    other: Any

    @property
    def said(self) -> str:
        """Path and both values, for people."""
        return "{}: {} and {}".format(self.path, *self.values)

    @property
    def values(self) -> tuple[str, str]:
        """The base's and the other's, as they are read."""
        return _shown(self.path, self.base), _shown(self.path, self.other)


def differing(base: SampledRun, other: SampledRun) -> list[Differs]:
    """Every difference of two set-ups, in the order in which a scenario is written."""
    ours, theirs = dict(_leaves(_setup(base))), dict(_leaves(_setup(other)))
    return [
        Differs(path, ours.get(path), theirs.get(path))
        for path in dict.fromkeys([*ours, *theirs])
        if ours.get(path) != theirs.get(path)
    ]


def versions(base: SampledRun, other: SampledRun) -> list[Differs]:
    """What differs between the installations. That is often what is compared, so it is no reason
    to refuse, and it is said."""
    ours, theirs = (dict(one.provenance["versions"]) for one in (base, other))
    return [
        Differs(name, ours.get(name), theirs.get(name))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def _setup(run: SampledRun) -> dict[str, Any]:
    resolved = run.scenario.resolved()
    topology = resolved.pop("topology")
    data: dict[str, Any] = {"kind": "drill" if run.scenario.is_drill else "measurement"}
    data |= {"clock": run.manifest.clock, "seeds": run.scenario.seed_list}
    data |= {"sites": list(topology["sites"]), "links": topology["links"]}
    data |= {key: value for key, value in resolved.items() if key not in _SAID_ONLY}
    return data | {key: run.provenance.get(key) for key in _MANIFEST}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{number}")
    else:
        yield path, value


def _shown(path: str, value: Any) -> str:
    if isinstance(value, int) and _RATE.fullmatch(path):
        return f"{value / 1e9:.12g} Gb/s"
    text = "unset" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
