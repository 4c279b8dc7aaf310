"""Does the machine keep time? A process of its own that does nothing but be woken by a timer, and
counts how often that came late. In real time only: in virtual time no timer is ever late, and one
more of them would move every other.

    python -m geokv.coordinator.timers

Each line on its standard input is answered with the counts since the last one, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PERIOD_NS = 10_000_000
LATE_NS = 1_000_000
"""Later than this is late: a hundredth of a TTFT of 100 ms."""
_ANSWER_WITHIN_S = 30.0
_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_S = 1_000_000_000


class LateTimers:
    """Asks the process that watches."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def since(self) -> dict[str, int]:
        """``timers``, ``late`` and ``worst_ns`` since it was last asked.

        Raises:
            TimeoutError: no answer within 30 s.
        """
        asked, answer = self._process.stdin, self._process.stdout
        assert asked is not None and answer is not None, "both are pipes"
        asked.write("\n")
        asked.flush()
        if not select.select([answer], [], [], _ANSWER_WITHIN_S)[0]:
            raise TimeoutError(f"the watcher of timers said nothing for {_ANSWER_WITHIN_S:g} s")
        counts: dict[str, int] = json.loads(answer.readline())
        return counts


@contextmanager
def late_timers(clock: str) -> Iterator[LateTimers | None]:
    """The watcher while the block runs; None, and no process, on the virtual clock."""
    if clock != "wall":
        yield None
        return
    command = [sys.executable, "-m", "geokv.coordinator.timers"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield LateTimers(process)
        finally:
            process.kill()


def watch(asked: int, answer: int) -> None:
    """Count until ``asked`` is closed.

    Args:
        asked: descriptor of which each byte that comes asks for the counts.
        answer: descriptor they are written to, a line each time.
    """
    timer, first_ns = _periodic()
    timers = late = worst_ns = fired = 0
    while True:
        ready, _, _ = select.select([timer, asked], [], [])
        if timer in ready:
            count = int.from_bytes(os.read(timer, 8), sys.byteorder)
            # The oldest of those that have come due since: how long it has waited is what counts.
            due_ns = first_ns + fired * PERIOD_NS
            late_ns = time.monotonic_ns() - due_ns
            fired += count
            timers += count
            worst_ns = max(worst_ns, late_ns)
            late += min(count, max(0, (late_ns - LATE_NS) // PERIOD_NS + 1))
        if asked in ready:
            if not os.read(asked, 1):
                return
            counts = {"timers": timers, "late": late, "worst_ns": worst_ns}
            os.write(answer, (json.dumps(counts) + "\n").encode())
            timers = late = worst_ns = 0


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


def _periodic() -> tuple[int, int]:
    """A timer's descriptor, and when it fires first.

    Raises:
        OSError: it could not be made.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    timer = libc.timerfd_create(_CLOCK_MONOTONIC, 0)
    first_ns = time.monotonic_ns() + PERIOD_NS
    period = _Timespec(*divmod(PERIOD_NS, _S))
    spec = _Itimerspec(period, _Timespec(*divmod(first_ns, _S)))
    if timer < 0 or libc.timerfd_settime(timer, _TIMER_ABSTIME, ctypes.byref(spec), None) < 0:
        raise OSError(ctypes.get_errno(), "no timer could be made")
    return int(timer), first_ns


if __name__ == "__main__":
    watch(0, 1)
