"""One run in a few words, from what its folder says that does not change while it goes on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import yaml

from geokv.dashboard.reading import Folder, open_below, read_json

_SCENARIO_LIMIT_BYTES = 2 * 2**20

State = Literal["running", "finished", "ended"]


@dataclass(frozen=True)
class Head:
    """One run in a few words.

    Attributes:
        id: its path below the root, with ``~`` for ``/``.
        state: ``ended`` is over and has no verdict.
        verdict: pass, fail, invalid, unknown; empty without one.
        started: UTC, ISO 8601.
        pace: virtual seconds per real one it is held to; empty where it is not.
        live: takes commands.
        done, total: requests; 0 where nothing is known. ``done`` is counted while it runs.
        doing: the last step in a word or two, while it runs.
        unreadable: why nothing more is known of it than where it lies; else empty.
    """

    id: str
    name: str
    title: str
    state: State
    verdict: str
    drill: bool
    clock: str
    seed: int
    started: str
    pace: str = ""
    live: bool = False
    done: int = 0
    total: int = 0
    doing: str = ""
    unreadable: str = ""

    def to_json(self) -> dict[str, Any]:
        """For the page."""
        return asdict(self)


def read_scenario(folder: Folder) -> dict[str, Any] | None:
    """``scenario.yaml`` of a run folder as plain data; None where it cannot be read."""
    try:
        with open_below(folder, ["scenario.yaml"]) as stream:
            text = stream.read(_SCENARIO_LIMIT_BYTES + 1)
        if len(text) > _SCENARIO_LIMIT_BYTES:
            return None
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, yaml.YAMLError):
        return None
    return found if isinstance(found, dict) else None


def read_head(identity: str, folder: Folder, started: str) -> Head:
    """What scenario, manifest and summary say; of a damaged folder, that it is one."""
    scenario, manifest = read_scenario(folder), read_json(folder, "manifest.json")
    if scenario is None or manifest is None:
        name, wanted = (
            ("scenario.yaml", "YAML mapping")
            if scenario is None
            else ("manifest.json", "JSON object")
        )
        return Head(
            id=identity,
            name=folder.names[-1],
            title="",
            state="ended",
            verdict="",
            drill=False,
            clock="",
            seed=0,
            started=started,
            unreadable=f"{name} is no {wanted}, or cannot be opened",
        )
    summary = read_json(folder, "summary.json") or {}
    verdict = summary.get("verdict")
    workload = scenario.get("workload")
    return Head(
        id=identity,
        name=str(scenario.get("name", folder.names[-1]))[:80],
        title=str(scenario.get("title", ""))[:300],
        state="ended",
        verdict=verdict if isinstance(verdict, str) else "",
        drill=isinstance(workload, dict) and workload.get("kind") in ("stream", "trace"),
        clock=str(manifest.get("clock", ""))[:20],
        seed=whole(manifest.get("seed")),
        started=started,
        pace=f"{pace:g}×" if isinstance(pace := manifest.get("pace"), int | float) else "",
        live=manifest.get("live") is True,
    )


def whole(value: Any) -> int:
    """An integer that a file should hold; 0 for anything else."""
    return value if isinstance(value, int) else 0
