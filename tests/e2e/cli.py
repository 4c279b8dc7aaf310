"""Running the command and reading what it left."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geokv.paths import CHECKOUT

SMALL = (
    *("--set", "workload.requests=1"),
    *("--set", "workload.prefix_tokens=512"),
    *("--set", "workload.warmup=0"),
)
"""Makes a smoke run smaller."""

Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Run:
    """A finished ``geokv run``."""

    done: Result
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return found


class Geokv:
    """``geokv`` in a working folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()

    def command(self, *args: str | Path) -> list[str]:
        return [sys.executable, "-m", "geokv", *map(str, args)]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "TERM": "dumb"}

    def __call__(self, *args: str | Path, timeout: float = 150) -> Result:
        """Run to the end; a command that hangs fails the test."""
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        """Start it and go on; both its outputs are pipes."""
        return subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_scenario(self, *args: str | Path, timeout: float = 150) -> Run:
        """``geokv run`` into a new folder."""
        out = self.folder / f"run-{next(self._numbers)}"
        return Run(self("run", *args, "--out", out, timeout=timeout), out)

    def run_scenarios(self, *runs: Sequence[str | Path]) -> list[Run]:
        """Several at the same time."""
        with ThreadPoolExecutor(len(runs)) as pool:
            return [one.result() for one in [pool.submit(self.run_scenario, *a) for a in runs]]

    def left(self) -> set[str]:
        """What lies in the working folder."""
        return {path.name for path in self.folder.iterdir()}
