"""How the processes of a run come to life."""

from __future__ import annotations

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
