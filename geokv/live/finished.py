"""Whether a run has written all its records. Only then can anything be made of them: a drill that
is judged half way is judged by what it had not yet done."""

from __future__ import annotations

from pathlib import Path

from geokv.errors import ConfigError
from geokv.live.events import EVENTS
from geokv.live.follow import is_going_on, read_events

_RECORDED = ("report", "verdict")
"""Events that come when all records are there. A run that broke while it drew has the first."""


def require_finished(run_dir: Path) -> None:
    """Refuse a run whose records are not all there. A folder without events is let through:
    runs of before there were events have none.

    Raises:
        ConfigError: the run goes on, or was ended before its records were whole.
        RunError: a line of its events is none.
    """
    if is_going_on(run_dir):
        raise ConfigError(
            f"{run_dir}: this run is still going on",
            "wait for its end, then it writes its report itself; geokv live stop ends a drill "
            "that takes commands",
        )
    if not (run_dir / EVENTS).is_file():
        return
    if not any(event["event"] in _RECORDED for event in read_events(run_dir)):
        raise ConfigError(
            f"{run_dir}: this run did not finish, its records are not whole",
            f"{run_dir / 'log.txt'} says how far it came; run it again",
        )
