"""Show what drills are doing: a table that lives on a terminal, lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from geokv.drills.suite import Ended, Task
from geokv.report.progress.plan import plan_of
from geokv.report.progress.steps import clock_words, say
from geokv.report.progress.tally import Tally

STYLES = {"pass": "green", "fail": "bold red", "error": "bold red", "stopped": "dim"}
_BAR = 24
_MOST_ROWS = 30


class Lines:
    """A line when a drill begins, when a fault does something, and when a drill has ended.

    Args:
        steps: show what happens between beginning and end.
    """

    def __init__(self, tasks: Sequence[Task], console: Console, steps: bool = True) -> None:
        self._tasks = tasks
        self._steps = steps
        self._console = console
        self._wide = max((len(task.name) for task in tasks), default=0)
        self._start = time.monotonic()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begun(self, number: int) -> None:
        if self._steps:
            self._print(number, "begins")

    def step(self, number: int, step: dict[str, Any]) -> None:
        if self._steps and step["event"] in ("cell", "fault", "report"):
            self._print(number, say(step))

    def ended(self, number: int, ended: Ended) -> None:
        why = ended.error.splitlines()[-1] if ended.error else ""
        self._print(number, f"{ended.verdict} after {ended.real_s:.0f} s {why}".rstrip())

    def _print(self, number: int, said: str) -> None:
        since_s = time.monotonic() - self._start
        name = self._tasks[number].name.ljust(self._wide)
        self._console.print(Text(f"{since_s:6.1f} s  {name}  {said}"), soft_wrap=True)


class Board:
    """A row per drill that runs or has ended, with what it is doing."""

    def __init__(self, tasks: Sequence[Task], console: Console) -> None:
        self._tasks = tasks
        self._said = dict.fromkeys(range(len(tasks)), "")
        self._begun: dict[int, Tally] = {}
        self._ended: dict[int, Ended] = {}
        self._live = Live(
            console=console, refresh_per_second=4, transient=True, get_renderable=self.render
        )

    def __enter__(self) -> Board:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._live.stop()

    def begun(self, number: int) -> None:
        self._begun[number] = Tally(plan_of(self._tasks[number].scenario))

    def step(self, number: int, step: dict[str, Any]) -> None:
        self._begun[number].take(step)
        if step["event"] == "request":
            if self._said[number] == "checking links":
                self._said[number] = "asking"
        elif said := say(step):
            self._said[number] = said

    def ended(self, number: int, ended: Ended) -> None:
        self._ended[number] = ended

    def render(self) -> RenderableType:
        """What stands there now: those that run, and as many of the others as there is room."""
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for title in ("drill", "", "", "left", "s"):
            right = title in ("left", "s")
            table.add_column(title, no_wrap=True, justify="right" if right else "left")
        running = [number for number in self._begun if number not in self._ended]
        over = list(self._ended)[-(_MOST_ROWS - len(running)) :]
        for number in sorted([*over, *running]):
            table.add_row(*self._row(number))
        waiting = len(self._tasks) - len(self._begun)
        said = f"{len(self._ended)} of {len(self._tasks)} done, {waiting} waiting"
        return Group(table, Text(said, style="dim"))

    def _row(self, number: int) -> list[RenderableType]:
        name = self._tasks[number].name
        if (ended := self._ended.get(number)) is not None:
            word = Text(ended.verdict, style=STYLES.get(ended.verdict, "yellow"))
            return [name, word, "", "", f"{ended.real_s:.0f}"]
        tally = self._begun[number]
        bar = ProgressBar(total=tally.plan.asked, completed=tally.asked, width=_BAR)
        left_s = tally.left_s()
        left = "" if left_s is None else f"≈ {clock_words(left_s)}"
        return [name, bar, self._said[number], left, f"{tally.elapsed_s:.0f}"]


def watcher(tasks: Sequence[Task], console: Console, steps: bool = True) -> Board | Lines:
    """The one that fits where the output goes; ``steps`` as of ``Lines``."""
    return Board(tasks, console) if console.is_terminal else Lines(tasks, console, steps)
