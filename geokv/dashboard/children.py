"""Runs that the page has started: ``geokv run`` processes, which end with the dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geokv.errors import ConfigError

STOP_S = 30.0
"""A run told to end first ends its VMs; one that is still there then is killed."""
_KEPT_BYTES = 8192


@dataclass
class Child:
    """One run that was started here.

    Attributes:
        said: the end of what it wrote on standard error.
        status: its exit code; None while it runs.
    """

    run_dir: Path
    process: asyncio.subprocess.Process
    said: str = ""
    status: int | None = None
    watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Of its ``geokv run``."""
        return self.process.pid


class Children:
    """Starts runs, and ends what it has started by its process id, never anything else.

    Args:
        most: how many may run at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._children: dict[Path, Child] = {}

    def all(self) -> list[Child]:
        """In the order they were started, those that have ended too."""
        return list(self._children.values())

    def require_room(self) -> None:
        """Raises ConfigError where as many go on as may."""
        running = sum(one.status is None for one in self._children.values())
        if running >= self._most:
            raise ConfigError(
                f"{running} runs that were started here still go on, and no more may",
                "wait for one to finish, or end one",
            )

    async def start(self, arguments: Sequence[str], run_dir: Path) -> Child:
        """Start ``geokv run ARGUMENTS --out run_dir``.

        Args:
            run_dir: new or empty.

        Raises:
            ConfigError: as many as may run do.
        """
        self.require_room()
        # A session of its own keeps the terminal's Ctrl-C from it: we end it, in our order.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "geokv",
            "run",
            *arguments,
            "--out",
            str(run_dir),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "120", "NO_COLOR": "1"},
            start_new_session=True,
        )
        child = Child(run_dir, process)
        child.watch = asyncio.create_task(self._watch(child))
        self._children[run_dir] = child
        return child

    def of(self, run_dir: Path) -> Child | None:
        """The child that runs into this folder, if it was started here."""
        return self._children.get(run_dir)

    def end(self, child: Child) -> None:
        """Have it end its VMs and itself; returns at once."""
        if child.status is None:
            # Not SIGINT: what a shell has put into its background, and all it starts, ignores that.
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)

    async def close(self) -> int:
        """End all; returns how many there were to end."""
        running = [one for one in self._children.values() if one.status is None]
        for child in running:
            self.end(child)
        watches = [one.watch for one in running if one.watch is not None]
        if watches:
            _, late = await asyncio.wait(watches, timeout=STOP_S)
            for child in running:
                if child.watch in late and child.status is None:
                    child.process.kill()
            if late:
                await asyncio.wait(late, timeout=STOP_S)
        return len(running)

    async def _watch(self, child: Child) -> None:
        assert child.process.stderr is not None, "it is a pipe"
        kept = b""
        while piece := await child.process.stderr.read(4096):
            kept = (kept + piece)[-_KEPT_BYTES:]
            child.said = kept.decode("utf-8", "replace").strip()
        child.status = await child.process.wait()
        # A run that was refused at once leaves its folder as it was: empty.
        with contextlib.suppress(OSError):
            child.run_dir.rmdir()
