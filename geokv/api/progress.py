"""How far a run is, as lines on standard error: a script's output and a notebook's take both."""

from __future__ import annotations

import sys
from typing import Any


class Lines:
    """One line per thing that begins.

    Args:
        cells: how many the run has.
    """

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._begun = 0

    def take(self, step: dict[str, Any]) -> None:
        """Show one step of a run, if there is something to say of it."""
        event = step["event"]
        if event == "folder":
            self._say(f"run folder {step['path']}")
        elif event == "cell":
            self._begun += 1
            self._say(f"cell {self._begun} of {self._cells}: {step['label']}")
        elif event == "fault":
            self._say(f"{step['name']}: {step['phase'].replace('-', ' ')}")
        elif event == "report":
            self._say("writing tables and plots")

    def _say(self, text: str) -> None:
        print(f"geokv: {text}", file=sys.stderr, flush=True)
