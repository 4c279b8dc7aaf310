"""Every suite, each where it belongs, and one count at the end.

    python tests/run_all.py [SUITE ...]

``unit`` and ``peers`` run anywhere, ``vm`` boots VMs, ``lab`` runs inside the VM, ``e2e``
drives the command line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from geokv.errors import GeokvError
from geokv.paths import CHECKOUT
from geokv.vm import Job, choose_place
from geokv.vm.supervise import run_job

SUITES = ("unit", "peers", "vm", "lab", "e2e")
_LAB_MEMORY_BYTES = 6 * 2**30
_LAB_WATCHDOG_S = 300
_ALONE = {"lab": ("test_queueing.py", "test_scale.py"), "e2e": ("test_busy_machine.py",)}
"""Files that are run beside no other of their suite. Those of the lab leave the guest's memory in
small pieces: the host maps 65,530 pieces (vm.max_map_count) for one guest process, and the process
that runs all tests would have more. That of the command line takes every processor."""


@dataclass
class Count:
    """Tests of one suite, or of all."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run_suite(name: str, folder: Path) -> Count:
    """Run one suite; a part of it that did not come to its end counts as one failure."""
    total = Count()
    for number, paths in enumerate(_parts(name)):
        report = folder / f"{name}-{number}.xml"
        pytest = ("-m", "pytest", *paths, "-rs", f"--junitxml={report}")
        status = _in_vm(pytest) if name == "lab" else _here(pytest, shared=name != "unit")
        count = _read(report)
        if status not in (0, 1) or count.passed + count.failed == 0:
            count.failed += 1
        total.add(count)
    return total


def _parts(name: str) -> list[list[str]]:
    """What is run together: the whole suite, but for what wants to be alone."""
    suite = f"tests/{name}"
    alone = [f"{suite}/{file}" for file in _ALONE.get(name, ())]
    return [[suite, *(f"--ignore={file}" for file in alone)], *([file] for file in alone)]


def _in_vm(pytest: tuple[str, ...]) -> int:
    """Inside one boot of the VM; a line for each test, as its watchdog takes silence amiss."""
    job = Job(("python", *pytest, "-v"), _LAB_MEMORY_BYTES, _LAB_WATCHDOG_S)
    try:
        outcome = run_job(choose_place("virtual"), job, partial(print, flush=True))
    except GeokvError as error:
        print(error)
        return 4
    print(outcome.errors, end="")
    return outcome.status


def _here(pytest: tuple[str, ...], shared: bool) -> int:
    """Two at a time.

    Args:
        shared: keep the tests of a file together, for the VMs and models they share, and the
            files in the order that their suite wants.
    """
    how = ("loadfile", "--no-loadscope-reorder") if shared else ("worksteal",)
    both = ("-q", "-n", "2", "--dist", *how)
    return subprocess.run([sys.executable, *pytest, *both], cwd=CHECKOUT).returncode


def _read(report: Path) -> Count:
    if not report.exists():
        return Count()
    suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        return Count()
    number = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    return Count(number["tests"] - failed - number["skipped"], failed, number["skipped"])


def main() -> None:
    total = Count()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or SUITES:
            print(f"\n== tests/{name}", flush=True)
            started = time.monotonic()
            count = run_suite(name, Path(folder))
            lines.append(f"{name:6} {count} in {time.monotonic() - started:.0f} s")
            total.add(count)
    print("\n" + "\n".join(lines) + f"\n\n{total}")
    sys.exit(1 if total.failed else 0)


if __name__ == "__main__":
    main()
