"""Processor time of other processes, to the ns."""

from __future__ import annotations

import time

_CPUCLOCK_SCHED = 2
"""The kernel's clock of all threads of a process, user and system (MAKE_PROCESS_CPUCLOCK)."""


def cpu_time_ns(pid: int) -> int | None:
    """What all threads of a process have used; None when it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return None


class CpuTime:
    """Processor time by name, kept when a process ends and another takes its name."""

    def __init__(self) -> None:
        self._ended_ns: dict[str, int] = {}
        self._now: dict[str, tuple[int, int]] = {}

    def read_ns(self, pids: dict[str, int]) -> dict[str, int]:
        """Name → ns used so far by every process that had it."""
        for name, pid in pids.items():
            used = cpu_time_ns(pid)
            before = self._now.get(name)
            if before is not None and before[0] != pid:
                self._ended_ns[name] = self._ended_ns.get(name, 0) + before[1]
                before = None
            if used is not None:
                self._now[name] = (pid, used)
            elif before is None:
                self._now[name] = (pid, 0)
        return {name: self._ended_ns.get(name, 0) + used for name, (_, used) in self._now.items()}
