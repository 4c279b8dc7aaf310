"""What a process has started, and whether it is still there."""

from __future__ import annotations

import time
from pathlib import Path


def descendants(root: int) -> set[int]:
    """Its children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: set[int] = set()
    todo = [root]
    while todo:
        new = children.get(todo.pop(), [])
        found.update(new)
        todo += new
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that run still; a zombie that nobody has collected does not."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(pid)
    return found


def wait_gone(pids: set[int], within_s: float = 5) -> None:
    """Fails when one of them is there for longer."""
    ends = time.monotonic() + within_s
    while alive(pids):
        assert time.monotonic() < ends, f"still alive: {alive(pids)}"
        time.sleep(0.02)
