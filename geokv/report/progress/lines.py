"""Progress where nobody can see a line change: a pipe, a file, the log of a build."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from geokv.report.progress.plan import RunPlan
from geokv.report.progress.steps import clock_words, say
from geokv.report.progress.tally import Tally

QUIET_S = 30.0
"""After so long without a line, how far it is is said again."""


class Lines:
    """A line when something begins or a fault does something; nothing is ever taken back."""

    def __init__(
        self, plan: RunPlan, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tally = Tally(plan, clock)
        self._console = console
        self._clock = clock
        self._last_s = clock()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def take(self, step: dict[str, Any]) -> None:
        """Count one step, and say it if it is worth a line."""
        self.tally.take(step)
        event = step["event"]
        if event == "cell":
            cells = len(self.tally.plan.cells)
            self._print(f"cell {step['cell'] + 1} of {cells}: {step['label']}{self._far()}")
        elif event in ("folder", "fault", "quiesce", "report"):
            self._print(say(step))
        elif self._clock() - self._last_s >= QUIET_S:
            self._print(f"{self.tally.said}{self._far()}")

    def _far(self) -> str:
        """How far it is, once there is something to say of that."""
        tally = self.tally
        if not tally.asked:
            return ""
        left_s = tally.left_s()
        said = f" · {tally.asked} of {tally.plan.asked} requests"
        return said if left_s is None else f"{said}, about {clock_words(left_s)} left"

    def _print(self, said: str) -> None:
        self._last_s = self._clock()
        self._console.print(Text(f"{self.tally.elapsed_s:7.1f} s  {said}"), soft_wrap=True)
