"""A paced guest: as long as real time, the same on its own clock, and idle meanwhile."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from geokv.vm import Job, Place
from geokv.vm.supervise import run_job

SCRIPT = """
import time
time.sleep(0.5)   # what start-up took is made up for by then
marks = [time.monotonic_ns()]
print("mark", flush=True)
for _ in range(2):
    time.sleep(1.5)
    marks.append(time.monotonic_ns())
    print("mark", flush=True)
print(marks)
"""
LOOK_S = 0.05
"""How often the host looks for output."""


def guests_ticks() -> int:
    """Processor time of this process's children, in clock ticks."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == os.getpid():
            total += int(fields[11]) + int(fields[12])
    return total


def play(place: Place, pace: float | None) -> tuple[list[float], list[int], str]:
    """Real moments of the marks, processor time spent until each, and the guest's own stamps."""
    moments: list[float] = []
    ticks: list[int] = []
    last = ""

    def take(line: str) -> None:
        nonlocal last
        last = line
        if line == "mark":
            moments.append(time.monotonic())
            ticks.append(guests_ticks())

    job = Job(("python", "-c", SCRIPT), 512 * 2**20, pace=pace)
    assert run_job(place, job, take).status == 0
    return moments, ticks, last


@pytest.fixture(scope="module")
def free(virtual: Place) -> str:
    """The guest's stamps when nobody holds it back."""
    moments, _, stamps = play(virtual, None)
    assert moments[-1] - moments[0] < 1.0
    return stamps


@pytest.mark.parametrize("pace", [1.0, 2.0])
def test_paced_time_is_real_time_and_changes_no_stamp(
    virtual: Place, free: str, pace: float
) -> None:
    moments, ticks, stamps = play(virtual, pace)
    assert stamps == free
    assert moments[-1] - moments[0] == pytest.approx(3.0 / pace, abs=LOOK_S + 0.05)
    # It sleeps: less than a tenth of the time is spent on a processor.
    assert (ticks[-1] - ticks[0]) / os.sysconf("SC_CLK_TCK") < 0.3 / pace
