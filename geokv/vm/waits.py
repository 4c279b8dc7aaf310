"""What each cell of a run in real time has waited for a processor, as the host counts it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from geokv.vm.run_queue import waited_between, waited_ns


class Waits:
    """Follows the steps of a run and writes ``records/waits.jsonl``, a line per cell.

    A cell begins with its step ``cell``, and what is measured of it ends with the second check of
    its links.

    Args:
        processors: that one part has to itself: one of a VM, all of this host without one.
    """

    def __init__(self, path: Path, processors: int) -> None:
        self._path = path
        self._processors = processors
        self._sessions: dict[int, int] = {}
        self._open: dict[int, tuple[int, int, dict[str, int]]] = {}

    def started(self, part: int, process: int) -> None:
        """The first process of a part, which leads a session of its own."""
        self._sessions[part] = process

    def take(self, part: int, step: dict[str, Any]) -> None:
        """Look at one step."""
        if step["event"] == "cell":
            before = waited_ns(self._sessions[part])
            if before is not None:
                self._open[part] = (step["cell"], time.monotonic_ns(), before)
        elif step["event"] == "check" and step["phase"] == "after" and part in self._open:
            cell, began_ns, before = self._open.pop(part)
            after = waited_ns(self._sessions[part])
            if after is not None:
                self._write(cell, time.monotonic_ns() - began_ns, waited_between(before, after))

    def _write(self, cell: int, elapsed_ns: int, waited: int) -> None:
        row = {
            "cell": cell,
            "elapsed_ns": elapsed_ns,
            "run_queue_wait_ns": waited,
            "processors": self._processors,
        }
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
