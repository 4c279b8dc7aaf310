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

from geokv.vm.run_queue import idle_ns, used_ns, waited_between, waited_ns
from geokv.vm.waits import Waits

BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.fork()
while True:
    pass
"""
ALONE = "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n"
HAND_OVER = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    there, back = back, there
else:
    os.write(there[1], b".")
while True:
    os.write(there[1], os.read(back[0], 1))
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
    waits = Waits(tmp_path / "waits.jsonl")
    with session(BUSY) as pid:
        waits.started(1, pid)
        waits.take(1, {"event": "cell", "cell": 4})
        # A drill builds its lab and starts its sites meanwhile, which is not measured.
        time.sleep(2)
        waits.take(1, {"event": "check", "phase": "before"})
        time.sleep(0.6)
        waits.take(1, {"event": "check", "phase": "after"})
        # Out of a cell nothing is written.
        waits.take(1, {"event": "check", "phase": "after"})
    (line,) = (tmp_path / "waits.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert (row["cell"], row["processors"]) == (4, 1)
    assert 600_000_000 <= row["elapsed_ns"] < 2_000_000_000
    assert row["run_queue_wait_ns"] > 0.6 * row["elapsed_ns"]
    assert 0 <= row["others_ns"] < 1.05 * row["elapsed_ns"]


def row_of(script: str, folder: Path) -> dict[str, int]:
    """Of a second of a session's life, as a cell's line."""
    waits = Waits(folder / "waits.jsonl")
    with session(script) as pid:
        waits.started(0, pid)
        waits.take(0, {"event": "cell", "cell": 0})
        waits.take(0, {"event": "check", "phase": "before", "cell": 0})
        time.sleep(1.0)
        waits.take(0, {"event": "check", "phase": "after", "cell": 0})
    row: dict[str, int] = json.loads((folder / "waits.jsonl").read_text())
    return row


def test_threads_that_hand_over_to_each_other_wait_for_nobody_else(tmp_path: Path) -> None:
    """As a VM does, on a processor that no one else may have but for a twentieth of the time."""
    try:
        row = row_of(ALONE + HAND_OVER, tmp_path)
    except FileNotFoundError:
        pytest.skip("only root can have a processor to itself")
    assert row["processors"] == 1
    assert row["run_queue_wait_ns"] > 0.1 * row["elapsed_ns"]
    assert row["others_ns"] < 0.15 * row["elapsed_ns"]


def test_others_that_have_the_processor_are_seen(tmp_path: Path) -> None:
    with session(BUSY):
        row = row_of(HAND_OVER, tmp_path)
    assert row["run_queue_wait_ns"] > 0.3 * row["elapsed_ns"]
    assert row["others_ns"] > 0.3 * row["elapsed_ns"]


def test_times_are_read_from_the_fields_they_stand_in(tmp_path: Path) -> None:
    def process(number: int, session: int, used: str) -> None:
        (tmp_path / str(number)).mkdir()
        rest = " ".join("7" * 7)
        line = f"{number} (a) b) S 1 1 {session} {rest} {used} 20 0 1"
        (tmp_path / str(number) / "stat").write_text(line)

    process(10, 10, "3 4 50 60")
    process(11, 10, "1 1 0 0")
    process(12, 12, "9 9 9 9")
    (tmp_path / "stat").write_text(
        "cpu  0 0 0 0 0\ncpu0 5 5 5 100 20 1 1 300\ncpu1 5 5 5 7 1 0 0 0\ncpu10 1 1 1 900 0\n"
    )
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert used_ns(10, tmp_path) == 119 * tick_ns
    assert idle_ns({0, 1}, tmp_path) == 128 * tick_ns
    assert idle_ns({1}, tmp_path) == 8 * tick_ns
