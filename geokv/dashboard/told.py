"""What a run tells of itself while it goes on: whether it does, how far it is, what it is doing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from geokv.dashboard.head import Head, State, read_scenario, whole
from geokv.dashboard.reading import Folder, is_locked, stamp_of
from geokv.dashboard.tail import EVENTS, LOG, Place, read_steps, source_of
from geokv.units import parse_seconds

_SILENT_MORE_S = 60.0
"""Beyond ``vm.watchdog``, which ends a VM that says nothing for so long: what the host needs
before the first VM and after the last."""


class Told:
    """What a run's own steps tell of it, read as they come."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._place: Place | None = None
        self._facts: dict[str, Any] = {}
        self._silent_s: float | None = None

    def fill(self, head: Head) -> Head:
        """The head with its state, and with what the steps say while it runs."""
        if head.unreadable:
            return head
        if self._is_going_on(head):
            self._read()
            return replace(head, state="running", verdict="", **self._facts)
        if self._place is None:
            self._facts = {}
            self._read(most=1)
        total = self._facts.get("total", 0)
        state: State = "finished" if head.verdict else "ended"
        return replace(head, state=state, live=False, total=total)

    def _is_going_on(self, head: Head) -> bool:
        if stamp_of(self._folder, EVENTS) is not None:
            return is_locked(self._folder, EVENTS)
        # Runs of before there were events, and the moment before there are some.
        if head.verdict:
            return False
        if self._silent_s is None:
            self._silent_s = _watchdog_s(self._folder) + _SILENT_MORE_S
        stamps = (stamp_of(self._folder, name) for name in (LOG, "manifest.json"))
        newest_ns = max((stamp[0] for stamp in stamps if stamp), default=0)
        return time.time_ns() - newest_ns < self._silent_s * 1e9

    def _read(self, most: int | None = None) -> None:
        source = source_of(self._folder)
        if source is None:
            return
        if self._place is None or source != self._place.file:
            self._place, self._facts = Place(source, 0), {}
        while True:
            steps, after = read_steps(self._folder, self._place)
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
            facts["total"] = whole(step.get("requests_total"))
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


def _watchdog_s(folder: Folder) -> float:
    scenario = read_scenario(folder) or {}
    vm = scenario.get("vm")
    try:
        return parse_seconds(vm["watchdog"]) if isinstance(vm, dict) else 0.0
    except (KeyError, TypeError, ValueError):
        return 0.0
