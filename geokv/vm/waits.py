"""What each cell of a run in real time has waited for a processor, as the host counts it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from geokv.vm.run_queue import idle_ns, used_ns, waited_between, waited_ns


class _Seen(NamedTuple):
    """Counts of one moment."""

    at_ns: int
    waited: dict[str, int]
    used_ns: int
    idle_ns: int
    processors: frozenset[int]


class Waits:
    """Follows the steps of a run and writes ``records/waits.jsonl``, a line per cell.

    The step ``cell`` says which one begins; what is measured of it lies between the first check of
    its links and the second, whatever was built before. Processors are those that a part may run
    on: one of a VM, all of this host without.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sessions: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self._open: dict[int, tuple[int, _Seen]] = {}

    def started(self, part: int, process: int) -> None:
        """The first process of a part, which leads a session of its own."""
        self._sessions[part] = process

    def take(self, part: int, step: dict[str, Any]) -> None:
        """Look at one step."""
        if step["event"] == "cell":
            self._cells[part] = step["cell"]
        elif step["event"] != "check":
            return
        elif step["phase"] == "before":
            if (seen := _look(self._sessions[part])) is not None:
                self._open[part] = (self._cells[part], seen)
        elif part in self._open:
            cell, before = self._open.pop(part)
            if (after := _look(self._sessions[part])) is not None:
                self._write(cell, before, after)

    def _write(self, cell: int, before: _Seen, after: _Seen) -> None:
        elapsed_ns, processors = after.at_ns - before.at_ns, len(before.processors)
        used = after.used_ns - before.used_ns
        idle = after.idle_ns - before.idle_ns
        row = {
            "cell": cell,
            "elapsed_ns": elapsed_ns,
            "run_queue_wait_ns": waited_between(before.waited, after.waited),
            "others_ns": max(0, elapsed_ns * processors - used - idle),
            "processors": processors,
        }
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def _look(session: int) -> _Seen | None:
    """None where the kernel counts no waits, or the session has ended."""
    try:
        processors = frozenset(os.sched_getaffinity(session))
    except ProcessLookupError:
        return None
    waited = waited_ns(session)
    if waited is None:
        return None
    return _Seen(time.monotonic_ns(), waited, used_ns(session), idle_ns(processors), processors)
