"""A run's events as the host writes them, from the first to the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from geokv.ending import code_of
from geokv.errors import GeokvError
from geokv.live.events import EventLog
from geokv.live.follow import LAST
from geokv.live.send import commands_path, make_commands, read_sent

Tell = Callable[[dict[str, Any]], None]


@contextmanager
def telling(run_dir: Path, also: Tell, live: bool) -> Iterator[Tell]:
    """What is told goes to ``events.jsonl``, then to ``also``.

    A run that breaks has ``failed`` as its last event. Before the last event, commands that
    nobody answered are refused.

    Args:
        live: whether the run takes commands.

    Raises:
        OSError: the folder cannot be written to, or is full.
    """
    log = EventLog(run_dir)
    answered: set[str] = set()

    def refuse_left() -> None:
        for data in read_sent(run_dir):
            if str(data.get("id")) not in answered:
                named = {"id": data.get("id"), "do": data.get("do")}
                why = "the run was over before it came to this"
                log.add({"event": "command", **named, "phase": "refused", "reason": why})

    def tell(event: dict[str, Any]) -> None:
        if event["event"] == "command":
            answered.add(str(event.get("id")))
        if event["event"] in LAST and live:
            refuse_left()
        log.add(event)
        also(event)

    try:
        if live:
            make_commands(run_dir)
        yield tell
    except BaseException as error:
        with suppress(OSError):
            if commands_path(run_dir).exists():
                refuse_left()
            log.add(_failed(error))
        raise
    finally:
        log.close()


def _failed(error: BaseException) -> dict[str, Any]:
    if isinstance(error, GeokvError):
        said = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    elif isinstance(error, KeyboardInterrupt):
        said = {"message": "stopped", "hint": "", "exit_code": code_of(error)}
    else:
        said = {"message": f"{type(error).__name__}: {error}", "hint": "", "exit_code": 4}
    return {"event": "failed", **said}
