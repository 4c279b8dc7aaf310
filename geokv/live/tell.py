"""Tell a running drill something, and hear what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geokv.errors import ConfigError, RunError
from geokv.live.follow import Follower
from geokv.live.send import send

WANTED = {"inject": "took-effect", "heal": "healed"}
"""Command → the phase of its fault after which it is done; of others their answer is enough."""


def tell(run: Path, within_s: float, do: str, **said: Any) -> Iterator[dict[str, Any]]:
    """Send a command when the first event is asked for, and give what is said of it: its answer,
    then the phases of its fault, to the one that was wanted or one that says it will not come
    (``did-not-fire``, ``did-not-heal``).

    Args:
        within_s: real seconds for all of it.
        do, said: as of ``send``.

    Raises:
        ConfigError: the run refuses it, or takes no commands.
        RunError: the run is over, or nothing more was heard in time.
    """
    follower = Follower(run)
    follower.new()
    command = send(run, do, **said)
    name, wanted = "", WANTED.get(do)
    for event in follower.until(within_s):
        if event["event"] == "command" and event.get("id") == command:
            if event["phase"] == "refused":
                raise ConfigError(event["reason"])
            name = event.get("name", "")
            yield event
            if wanted is None:
                return
        elif event["event"] == "fault" and event["name"] == name and name:
            yield event
            if event["phase"] == wanted or event["phase"].startswith("did-not"):
                return
    raise RunError(f"{run}: nothing more was heard of it within {within_s:g} s")
