"""How the processes of a run come to life."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.path[:0] = {path!r}
print("the program", flush=True)
from lone_worker import settings_of
from geokv.coordinator.fleet import Fleet

with Fleet() as fleet:
    fleet.start_site(settings_of(), "/proc/self/ns/net")
    fleet.start_client("a", "/proc/self/ns/net")
    fleet.wait_ready()
    faults = [
        int(Path(f"/proc/{{one.process.pid}}/stat").read_text().rsplit(")", 1)[1].split()[7])
        for one in (fleet.sites["a"], fleet.clients["a"])
    ]
    print(*faults)
"""


def test_a_fork_neither_imports_the_program_again_nor_copies_its_parent(tmp_path):
    """The program has no ``if __name__``: imported again it would start fleets without end."""
    program = tmp_path / "program.py"
    path = [str(Path(__file__).parent), *sys.path]
    program.write_text("from pathlib import Path\n" + PROGRAM.format(path=path))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    first, faults = done.stdout.splitlines()
    assert first == "the program"
    site, client = map(int, faults.split())
    # 27,000 and 20,000 when each collection walked through what the forkserver had imported
    assert 0 < site < 12_000 and 0 < client < 8_000


MOMENTS = """
import sys
sys.path[:0] = {path!r}
from geokv.clock import BEAT_NS, now_ns
from geokv.coordinator.fleet import Fleet
from lone_worker import say_when

with Fleet() as fleet:
    moment_ns = now_ns()
    _, pipe = fleet.start_helper("first", say_when)
    print(moment_ns % BEAT_NS, pipe.recv() % BEAT_NS)
"""


def test_whatever_is_imported_the_first_site_starts_at_the_same_moment_of_a_beat(tmp_path):
    """Every interpreter of the program imports ``sitecustomize``, as it would another package."""
    program = tmp_path / "program.py"
    path = [str(Path(__file__).parent), *sys.path]
    program.write_text(MOMENTS.format(path=path))
    moments = []
    for readings in (0, 1, 100, 2000):
        more = f"import time\nfor _ in range({readings}):\n    time.monotonic_ns()\n"
        (tmp_path / "sitecustomize.py").write_text(more)
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        moments.append(tuple(map(int, done.stdout.split())))
    begun, started = zip(*moments, strict=True)
    assert len(set(begun)) == 1, moments
    # Which of two processes that could go on does so first may cost a reading (256 ns) or two.
    assert max(started) - min(started) <= 512, moments
