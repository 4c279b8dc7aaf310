"""The watcher of timers: counts what is there, sees a machine that is kept busy, and is not there
at all on the virtual clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from geokv.coordinator.timers import PERIOD_NS, LateTimers, late_timers


def test_it_counts_a_wake_up_every_period() -> None:
    with late_timers("wall") as timers:
        assert timers is not None
        timers.since()
        began_ns = time.monotonic_ns()
        time.sleep(0.5)
        counts = timers.since()
        elapsed = (time.monotonic_ns() - began_ns) / PERIOD_NS
    # However late it is woken, none is lost.
    assert counts["timers"] == pytest.approx(elapsed, abs=6 + 0.2 * elapsed)
    assert 0 <= counts["late"] <= counts["timers"]
    assert counts["worst_ns"] > 0


def test_one_that_is_stopped_comes_late_and_says_by_how_much() -> None:
    with late_timers("wall") as timers:
        assert timers is not None
        timers.since()
        os.kill(watcher(timers), signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(watcher(timers), signal.SIGCONT)
        counts = timers.since()
        # 300 ms without being woken are 29 or 30 wake-ups that came late, the first by the most.
        assert counts["late"] >= 28
        assert counts["worst_ns"] >= 280_000_000
        fresh = timers.since()
        assert fresh["timers"] < counts["timers"], "counts begin anew each time"


def test_on_the_virtual_clock_there_is_none() -> None:
    with late_timers("virtual") as timers:
        assert timers is None


def test_it_ends_with_the_block() -> None:
    with late_timers("wall") as timers:
        assert timers is not None
        process = watcher(timers)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_it_ends_with_whoever_asks() -> None:
    command = [sys.executable, "-m", "geokv.coordinator.timers"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def watcher(timers: LateTimers) -> int:
    return timers._process.pid
