"""The runs of a folder: which there are, and what becomes of each."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from geokv.dashboard.reading import is_locked, open_below, read_json, stamp_of
from geokv.dashboard.tail import EVENTS, LOG, Place, read_steps, source_of
from geokv.units import parse_seconds

DEEPEST = 3
"""Folders below the root that a run may lie in: ``results/<scenario>/<run>``, and one more."""
MOST_RUNS = 500
"""Newest ones that are listed."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STAMP = re.compile(r"^(\d{8}-\d{6})-[0-9a-f]{8}")
_SCENARIO_LIMIT_BYTES = 2 * 2**20
_SILENT_MORE_S = 60.0
"""Beyond ``vm.watchdog``, which ends a VM that says nothing for so long: what the host needs
before the first VM and after the last."""

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

    def to_json(self) -> dict[str, Any]:
        """For the page."""
        return asdict(self)


class Shelf:
    """Looks through the folder when asked; what cannot have changed is not read again.

    Args:
        root: the folder; it need not be there yet.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.left_off = 0
        """Runs beyond ``MOST_RUNS`` when last looked."""
        self._folders: dict[str, Path] = {}
        self._fixed: dict[str, tuple[tuple[Any, ...], Head]] = {}
        self._told: dict[str, _Told] = {}
        # Pages are served from threads.
        self._lock = threading.RLock()

    def look(self) -> dict[str, Head]:
        """Every run by id, newest first."""
        with self._lock:
            return self._look()

    def _look(self) -> dict[str, Head]:
        found = sorted(_run_folders(self.root), key=lambda one: one[0], reverse=True)
        self.left_off = max(0, len(found) - MOST_RUNS)
        self._folders = {identity: path for _, identity, path in found[:MOST_RUNS]}
        heads = {}
        for started, identity, path in found[:MOST_RUNS]:
            head = self._head(identity, path, started)
            if head is not None:
                heads[identity] = head
        for kept in (self._fixed, self._told):
            for identity in kept.keys() - heads.keys():
                kept.pop(identity, None)
        return heads

    def folder(self, identity: str) -> Path | None:
        """Where a run lies, by the listing alone: an id never becomes a path."""
        with self._lock:
            if identity not in self._folders:
                self._look()
            return self._folders.get(identity)

    def head(self, identity: str) -> Head | None:
        """One run as it is now."""
        with self._lock:
            path = self.folder(identity)
            return None if path is None else self._head(identity, path, _started(path))

    def _head(self, identity: str, path: Path, started: str) -> Head | None:
        files = ("scenario.yaml", "manifest.json", "summary.json")
        stamps = tuple(stamp_of(path, name) for name in files)
        kept = self._fixed.get(identity)
        if kept is None or kept[0] != stamps:
            head = _read_head(identity, path, started)
            if head is None:
                return None
            self._fixed[identity] = kept = (stamps, head)
        told = self._told.setdefault(identity, _Told(path))
        return told.fill(kept[1])


class _Told:
    """What a run's own steps tell of it, read as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place: Place | None = None
        self._facts: dict[str, Any] = {}
        self._silent_s: float | None = None

    def fill(self, head: Head) -> Head:
        """The head with its state, and with what the steps say while it runs."""
        going = self._is_going_on(head)
        if going:
            self._read()
            return replace(head, state="running", verdict="", **self._facts)
        if self._place is None:
            self._facts = {}
            self._read(most=1)
        total = self._facts.get("total", 0)
        state: State = "finished" if head.verdict else "ended"
        return replace(head, state=state, live=False, total=total)

    def _is_going_on(self, head: Head) -> bool:
        if stamp_of(self._path, EVENTS) is not None:
            return is_locked(self._path, EVENTS)
        # Runs of before there were events, and the moment before there are some.
        if head.verdict:
            return False
        if self._silent_s is None:
            self._silent_s = _watchdog_s(self._path) + _SILENT_MORE_S
        stamps = (stamp_of(self._path, name) for name in (LOG, "manifest.json"))
        newest_ns = max((stamp[0] for stamp in stamps if stamp), default=0)
        return time.time_ns() - newest_ns < self._silent_s * 1e9

    def _read(self, most: int | None = None) -> None:
        source = source_of(self._path)
        if source is None:
            return
        if self._place is None or source != self._place.file:
            self._place, self._facts = Place(source, 0), {}
        while True:
            steps, after = read_steps(self._path, self._place)
            if after == self._place:
                return
            if after.offset < self._place.offset:
                self._facts = {}
            self._place = after
            for step in steps[:most]:
                self._take(step)
            if most is not None:
                return

    def _take(self, step: dict[str, Any]) -> None:
        event, facts = step["event"], self._facts
        if event == "run":
            facts["total"] = _whole(step.get("requests_total"))
        if event == "request" and step.get("warmup") is not True:
            facts["done"] = facts.get("done", 0) + 1
        if event in _DOING:
            facts["doing"] = _DOING[event] or _named(step)


def _named(step: dict[str, Any]) -> str:
    """Of a cell its label, of a fault its name and what has become of it."""
    if step["event"] == "cell":
        return str(step.get("label", ""))[:80]
    phase = str(step.get("phase", "")).replace("-", " ")
    return f"{step.get('name', '')}: {phase}"[:80]


_DOING = {
    "run": "starting",
    "folder": "booting",
    "lab": "building the network",
    "sites": "starting sites",
    "cell": "",
    "check": "checking links",
    "fault": "",
    "quiesce": "looking at the books",
    "cold": "asking a cold engine",
    "report": "writing the report",
}


def identity_of(root: Path, run_dir: Path) -> str:
    """The id of a run below ``root``; names of folders have no ``~``."""
    return "~".join(run_dir.relative_to(root).parts)


def _run_folders(root: Path) -> Iterator[tuple[str, str, Path]]:
    """``(started, id, path)`` of every folder that holds a run."""
    left: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    while left:
        folder, names = left.pop()
        try:
            with os.scandir(folder) as entries:
                inside = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        for name in inside:
            path, path_names = folder / name, (*names, name)
            if _NAME.fullmatch(name) is None:
                continue
            if stamp_of(path, "manifest.json") and stamp_of(path, "scenario.yaml"):
                yield _started(path), "~".join(path_names), path
            elif len(path_names) < DEEPEST:
                left.append((path, path_names))


def _started(path: Path) -> str:
    """By the folder's name, which survives copying; else when its manifest was written."""
    match = _STAMP.match(path.name)
    if match:
        try:
            moment = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
            return moment.isoformat()
        except ValueError:
            pass
    stamp = stamp_of(path, "manifest.json")
    seconds = stamp[0] // 10**9 if stamp else 0
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def read_scenario(path: Path) -> dict[str, Any] | None:
    """``scenario.yaml`` of a run folder as plain data; None where it cannot be read."""
    try:
        with open_below(path, ["scenario.yaml"]) as stream:
            text = stream.read(_SCENARIO_LIMIT_BYTES + 1)
        if len(text) > _SCENARIO_LIMIT_BYTES:
            return None
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, yaml.YAMLError):
        return None
    return found if isinstance(found, dict) else None


def _watchdog_s(path: Path) -> float:
    scenario = read_scenario(path) or {}
    vm = scenario.get("vm")
    try:
        return parse_seconds(vm["watchdog"]) if isinstance(vm, dict) else 0.0
    except (KeyError, TypeError, ValueError):
        return 0.0


def _read_head(identity: str, path: Path, started: str) -> Head | None:
    scenario, manifest = read_scenario(path), read_json(path, "manifest.json")
    if scenario is None or manifest is None:
        return None
    summary = read_json(path, "summary.json") or {}
    verdict = summary.get("verdict")
    workload = scenario.get("workload")
    return Head(
        id=identity,
        name=str(scenario.get("name", path.name))[:80],
        title=str(scenario.get("title", ""))[:300],
        state="ended",
        verdict=verdict if isinstance(verdict, str) else "",
        drill=isinstance(workload, dict) and workload.get("kind") in ("stream", "trace"),
        clock=str(manifest.get("clock", ""))[:20],
        seed=_whole(manifest.get("seed")),
        started=started,
        pace=f"{pace:g}×" if isinstance(pace := manifest.get("pace"), int | float) else "",
        live=manifest.get("live") is True,
    )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
