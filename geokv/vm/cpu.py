"""One processor for each VM.

User-Mode Linux passes control between its kernel and its processes at every system
call and page fault. On one processor that is a direct switch (4 µs a system call
measured); across two it is an interrupt to the other one and back (80 µs inside
another VM). Each VM therefore stays on one processor, and VMs of all runs of this
user share the processors out by file locks.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import IO

from geokv.paths import cache_folder


class Processor:
    """A processor lent to one VM; ``close`` gives it back.

    Attributes:
        number: as ``taskset`` counts.
    """

    def __init__(self, number: int, lock: IO[str] | None) -> None:
        self.number = number
        self._lock = lock

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def lend_processor() -> Processor:
    """The first processor that no other VM has; a shared one when all are lent."""
    numbers = sorted(os.sched_getaffinity(0))
    folder = cache_folder() / "processors"
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        lock = (folder / str(number)).open("w")
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Processor(number, lock)
        lock.close()
    return Processor(numbers[os.getpid() % len(numbers)], None)
