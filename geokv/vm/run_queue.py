"""What a run had of its processors, by the host's own counts, which a guest cannot see.

How long its threads have been ready and had none stands in ``/proc/PID/task/TID/schedstat``, second
field. That alone blames nobody: a VM of User-Mode Linux hands its processor from its kernel to its
processes and back at every system call, and whoever is woken waits until the other sleeps. Two
processes that do nothing else wait 30 % of the time on a processor that no one else may have
(238,000 hand-overs a second and way, 0.63 µs each). So what others had of it is counted, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from geokv.units import NS_PER_S

_SESSION = 3
"""Place of the session in ``/proc/PID/stat``, counted behind the command's closing bracket."""
_USED = slice(11, 15)
"""Places of user and system time, its own and that of children it has waited for (proc(5))."""
_IDLE = slice(4, 6)
"""Places of idle and of waiting for a disk in a line of ``/proc/stat``; stolen time is not idle."""
_PROC = Path("/proc")


def waited_ns(session: int, proc: Path = _PROC) -> dict[str, int] | None:
    """Thread → ns it has waited in the run queue since it began, of all threads of a session.

    None where the kernel does not count it.
    """
    found: dict[str, int] = {}
    for process, _ in _processes(session, proc):
        try:
            for thread in (process / "task").iterdir():
                counts = (thread / "schedstat").read_text(encoding="ascii").split()
                found[thread.name] = int(counts[1])
        except (FileNotFoundError, ProcessLookupError):
            # It has ended meanwhile, or this kernel has no such file.
            continue
    return found or None


def waited_between(before: dict[str, int], after: dict[str, int]) -> int:
    """What was added, of threads that were there at the end."""
    return sum(ns - before.get(thread, 0) for thread, ns in after.items())


def used_ns(session: int, proc: Path = _PROC) -> int:
    """Processor time of a session's processes and of those that ended in it, to a tick."""
    ticks = sum(sum(map(int, fields[_USED])) for _, fields in _processes(session, proc))
    return ticks * _tick_ns()


def idle_ns(processors: Collection[int], proc: Path = _PROC) -> int:
    """How long these processors have had nothing to run, summed, to a tick."""
    names = {f"cpu{number}" for number in processors}
    lines = (proc / "stat").read_text(encoding="ascii").splitlines()
    fields = [line.split() for line in lines]
    return _tick_ns() * sum(sum(map(int, one[_IDLE])) for one in fields if one[0] in names)


def _processes(session: int, proc: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folder of each process of a session, and its fields behind the command."""
    for stat in proc.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[_SESSION]) == session:
            yield stat.parent, fields


def _tick_ns() -> int:
    return NS_PER_S // os.sysconf("SC_CLK_TCK")
