"""Runs inside the VM: a part of a run in which one site is killed before its remote hits.

    python tests/e2e/kill_a_site.py VICTIM RUN_DIR PART PARTS

Everything is the product's; only the killer is added from outside.
"""

from __future__ import annotations

import os
import signal
import sys

from geokv.coordinator import run
from geokv.coordinator.cells import CellRunner

victim = sys.argv.pop(1)


class Killing(CellRunner):
    """Kills the victim, by its process id, once the cache is warm."""

    def _request(self, arm: str, repeat: int, warmup: bool) -> None:
        process = self._fleet.sites[victim].process
        if arm == "remote-hit" and process.exitcode is None:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join(5)
        super()._request(arm, repeat, warmup)


if __name__ == "__main__":
    run.CellRunner = Killing  # type: ignore[misc]
    run.main()
