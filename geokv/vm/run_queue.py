"""How long the processes of a VM have been ready to run and had no processor: the host's own count
(``/proc/PID/task/TID/schedstat``, second field), which a guest cannot see."""

from __future__ import annotations

from pathlib import Path

_SESSION = 3
"""Place of the session in ``/proc/PID/stat``, counted behind the command's closing bracket."""


def waited_ns(session: int, proc: Path = Path("/proc")) -> dict[str, int] | None:
    """Thread → ns it has waited in the run queue since it began, of all threads of a session.

    None where the kernel does not count it.
    """
    found: dict[str, int] = {}
    for stat in proc.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[_SESSION]) != session:
                continue
            for thread in (stat.parent / "task").iterdir():
                counts = (thread / "schedstat").read_text(encoding="ascii").split()
                found[thread.name] = int(counts[1])
        except (FileNotFoundError, ProcessLookupError):
            # It has ended meanwhile, or this kernel has no such file.
            continue
    return found or None


def waited_between(before: dict[str, int], after: dict[str, int]) -> int:
    """What was added, of threads that were there at the end."""
    return sum(ns - before.get(thread, 0) for thread, ns in after.items())
