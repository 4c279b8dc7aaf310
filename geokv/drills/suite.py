"""Run drills side by side, as many VMs at once as there are processors."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

from geokv.drills.child import STOP_S, Child, Pages, context
from geokv.ending import code_of
from geokv.measure.verdict import EXIT_CODES
from geokv.scenario import Scenario

_LOOK_S = 0.25


@dataclass(frozen=True)
class Task:
    """One run to make. ``out`` None is a folder of its own under ``root``."""

    name: str
    scenario: Scenario
    out: Path | None = None
    root: Path = Path("results")
    pages: Pages = "always"

    @property
    def requests(self) -> int:
        """How many it asks in all its cells."""
        return self.scenario.workload.requests * len(self.scenario.cells())


@dataclass
class Ended:
    """One run that is over, or was not begun.

    Attributes:
        summary: None when it could not be carried out, or was stopped.
        error: why it could not; ``hint`` what to do.
        stopped: exit code of the signal that stopped it, as a shell has it; 0 when none did.
        real_s: wall clock.
    """

    task: Task
    run_dir: Path | None = None
    summary: dict[str, Any] | None = None
    error: str = ""
    hint: str = ""
    stopped: int = 0
    real_s: float = 0.0

    @property
    def verdict(self) -> str:
        """Of the run; ``error`` or ``stopped`` where there is none."""
        if self.summary is not None:
            return str(self.summary["verdict"])
        return "stopped" if self.stopped else "error"


class Watch(Protocol):
    """Whoever shows what is going on."""

    def begun(self, number: int) -> None:
        """Run ``number`` of the suite, from 0, has started."""

    def step(self, number: int, step: dict[str, Any]) -> None:
        """It has told a step, as ``geokv.live.events`` has them."""

    def ended(self, number: int, ended: Ended) -> None:
        """It is over."""


def exit_code(ended: Sequence[Ended]) -> int:
    """By the worst: stopped, then fail, invalid, what could not run or is unknown, pass."""
    words = {one.verdict for one in ended}
    if stopped := max((one.stopped for one in ended), default=0):
        return stopped
    for word in ("fail", "invalid", "unknown"):
        if word in words:
            return EXIT_CODES[word]
    return EXIT_CODES["unknown"] if "error" in words or not words else EXIT_CODES["pass"]


def run_tasks(tasks: Sequence[Task], jobs: int, watch: Watch) -> list[Ended]:
    """Run all, those that ask most first, and return them in the order they were given.

    A run that fails or breaks ends no other. Ctrl-C, SIGTERM and SIGHUP (``geokv.ending``) end
    all: what ran is stopped, what had not begun is not, and both are said to be ``stopped``.

    Args:
        jobs: VMs at once.
    """
    return _Suite(tasks, jobs, watch).run()


class _Suite:
    def __init__(self, tasks: Sequence[Task], jobs: int, watch: Watch) -> None:
        self._tasks = tasks
        self._jobs = jobs
        self._watch = watch
        self._ended: dict[int, Ended] = {}
        self._running: dict[int, Child] = {}
        self._begun_s: dict[int, float] = {}
        self._folders: dict[int, Path] = {}
        self._last: dict[int, tuple[str, Any]] = {}
        self._context = context()
        order = sorted(range(len(tasks)), key=lambda n: (-tasks[n].requests, n))
        self._waiting = order

    def run(self) -> list[Ended]:
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._jobs:
                    self._begin(self._waiting.pop(0))
                self._look()
        except KeyboardInterrupt as error:
            with _deaf():
                self._stop(code_of(error))
        finally:
            # Nothing is left when anything else goes wrong here.
            for child in self._running.values():
                child.stop()
            for child in self._running.values():
                child.close()
        return [self._ended[number] for number in range(len(self._tasks))]

    def _begin(self, number: int) -> None:
        task = self._tasks[number]
        self._begun_s[number] = time.monotonic()
        self._running[number] = Child(self._context, task.scenario, task.out, task.root, task.pages)
        self._watch.begun(number)

    def _look(self) -> None:
        channels = {child.channel: number for number, child in self._running.items()}
        for channel in wait(list(channels), _LOOK_S):
            number = channels[channel]  # type: ignore[index]
            if not self._running[number].read(self._taker(number)):
                self._end(number)

    def _taker(self, number: int) -> Callable[[str, Any], None]:
        def take(kind: str, value: Any) -> None:
            if kind != "step":
                self._last[number] = (kind, value)
                return
            if value["event"] == "folder":
                self._folders[number] = Path(value["path"])
            self._watch.step(number, value)

        return take

    def _end(self, number: int) -> None:
        child = self._running.pop(number)
        child.close()
        kind, value = self._last.get(number, ("", None))
        ended = Ended(
            self._tasks[number],
            self._folders.get(number),
            real_s=time.monotonic() - self._begun_s[number],
        )
        if kind == "done":
            ended.summary = value
        elif kind == "error":
            ended.error, ended.hint = value
        elif kind == "stopped":
            ended.stopped = value
        else:
            ended.error = f"its process ended by itself (exit code {child.process.exitcode})"
            ended.hint = "log.txt in its run folder shows how far it came"
        self._ended[number] = ended
        self._watch.ended(number, ended)

    def _stop(self, code: int) -> None:
        for child in self._running.values():
            child.stop()
        for number in list(self._running):
            child = self._running[number]
            while child.channel.poll(STOP_S) and child.read(self._taker(number)):
                continue
            if self._last.get(number, ("", None))[0] not in ("done", "error"):
                self._last[number] = ("stopped", code)
            self._end(number)
        # What waits, and what was just being started.
        for number, task in enumerate(self._tasks):
            self._ended.setdefault(number, Ended(task, stopped=code))
        self._waiting = []


@contextmanager
def _deaf() -> Iterator[None]:
    """While things are put away, which has a limit, another signal to end changes nothing."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
