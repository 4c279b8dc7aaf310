"""What a session's threads have waited for a processor, by real processes that fight for one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from geokv.vm.run_queue import waited_between, waited_ns
from geokv.vm.waits import Waits

BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.fork()
while True:
    pass
"""
IDLE = "import time\ntime.sleep(600)"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count run-queue waits"
)


@contextmanager
def session(script: str) -> Iterator[int]:
    """A process, and its children, in a session of their own."""
    processor = str(min(os.sched_getaffinity(0)))
    command = [sys.executable, "-c", script, processor]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        time.sleep(0.5)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def waited_share(pid: int, seconds: float = 1.0) -> float:
    before, began_ns = waited_ns(pid), time.monotonic_ns()
    time.sleep(seconds)
    after = waited_ns(pid)
    assert before is not None and after is not None
    return waited_between(before, after) / (time.monotonic_ns() - began_ns)


def test_two_that_want_one_processor_wait_for_each_other_and_a_sleeper_does_not() -> None:
    with session(BUSY) as pid:
        # While one of both runs, the other waits; more if others want the processor too.
        assert waited_share(pid) > 0.8
    with session(IDLE) as pid:
        assert waited_share(pid) < 0.05


def test_other_sessions_do_not_count() -> None:
    with session(BUSY), session(IDLE) as pid:
        assert waited_share(pid) < 0.05


def test_a_session_that_is_not_there_has_no_count() -> None:
    assert waited_ns(2**22 + 1) is None


def test_a_thread_that_came_meanwhile_counts_from_its_beginning() -> None:
    assert waited_between({"1": 5, "2": 7}, {"2": 9, "3": 4}) == 6


def test_each_cell_of_a_part_gets_a_line(tmp_path: Path) -> None:
    waits = Waits(tmp_path / "waits.jsonl", 1)
    with session(BUSY) as pid:
        waits.started(1, pid)
        waits.take(1, {"event": "cell", "cell": 4})
        waits.take(1, {"event": "check", "phase": "before", "cell": 4})
        time.sleep(0.6)
        waits.take(1, {"event": "check", "phase": "after", "cell": 4})
        # Out of a cell nothing is written.
        waits.take(1, {"event": "check", "phase": "after", "cell": 4})
    (line,) = (tmp_path / "waits.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert (row["cell"], row["processors"]) == (4, 1)
    assert row["elapsed_ns"] >= 600_000_000
    assert row["run_queue_wait_ns"] > 0.6 * row["elapsed_ns"]
