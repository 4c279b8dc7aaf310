"""A place among this user's VMs: a processor of its own and a folder of its own.

User-Mode Linux passes control between its kernel and its processes at every system
call and page fault. On one processor that is a direct switch (4 µs a system call
measured); across two it is an interrupt to the other one and back (80 µs inside
another VM). Each VM therefore stays on one processor.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from geokv.errors import HostError

_MOST = 256


class Slot:
    """Lent to one VM until ``close``; freed by the kernel if its holder dies.

    Attributes:
        folder: empty when the slot is taken, removed when it is given back.
        processor: as ``taskset`` counts.
    """

    def __init__(self, number: int, folder: Path, lock: IO[str]) -> None:
        processors = sorted(os.sched_getaffinity(0))
        self.processor = processors[number % len(processors)]
        self.folder = folder
        self._lock = lock

    def close(self) -> None:
        """Give everything back; harmless when repeated."""
        if not self._lock.closed:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._lock.close()


def take_slot() -> Slot:
    """The first free slot. What a dead run left in its folder is removed.

    Raises:
        HostError: too many VMs run already, or the folder is not ours.
    """
    base = _base()
    for number in range(_MOST):
        lock = (base / f"{number:03}.lock").open("w")
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = base / f"{number:03}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            return Slot(number, folder, lock)
        lock.close()
    raise HostError(f"{_MOST} VMs of this user run already", "wait for one to end")


def dead_folders() -> list[Path]:
    """Folders of VMs whose holder died without clearing up."""
    found = []
    for folder in sorted(path for path in _base().iterdir() if path.is_dir()):
        with folder.with_suffix(".lock").open("w") as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(folder)
    return found


def _base() -> Path:
    base = Path(tempfile.gettempdir()) / f"geokv-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    status = base.stat(follow_symlinks=False)
    if status.st_uid != os.getuid() or not base.is_dir() or base.is_symlink():
        raise HostError(f"{base} belongs to somebody else", "set TMPDIR to a folder of yours")
    return base
