"""Choose how a run is shown."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from geokv.report.progress.board import Board
from geokv.report.progress.lines import Lines
from geokv.report.progress.plan import plan_of
from geokv.scenario import Scenario


class Silent:
    """Says nothing: ``--quiet``."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def take(self, step: dict[str, Any]) -> None:
        """Nobody is told."""


def watch_run(scenario: Scenario, console: Console, quiet: bool = False) -> Board | Lines | Silent:
    """The one that fits where progress goes.

    Args:
        console: of standard error.
    """
    if quiet:
        return Silent()
    plan = plan_of(scenario)
    return Board(plan, console) if console.is_terminal else Lines(plan, console)
