"""What the kernel says of a process; it answers whether the process does or not."""

from __future__ import annotations

from pathlib import Path


def state_of(pid: int) -> str:
    """Letter of its state, as in ``ps`` (``S`` sleeps, ``T`` stopped, ``Z`` ended and not yet
    waited for); empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The name before it, in parentheses, may hold anything.
    return text.rpartition(")")[2].split()[0]
