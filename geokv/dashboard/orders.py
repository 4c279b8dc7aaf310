"""What the page tells a running lab: faults, their healing, the end of its stream."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.dashboard.reading import Folder, is_locked, open_to_append
from geokv.dashboard.tail import EVENTS
from geokv.errors import RunError
from geokv.live.send import COMMANDS, FOLDER, OVER_HINT, command_line
from geokv.live.words import parse_fault


class Order(Strict):
    """As in ``geokv live``; the lab checks it again, with all it knows."""

    do: Literal["inject", "heal", "stop"]
    event: dict[str, Any] | None = None
    """Of ``inject``, as in a timeline; or"""
    line: Annotated[str, Field(max_length=500)] | None = None
    """the same as people type it."""
    name: Annotated[str, Field(max_length=64)] | None = None
    """Of ``heal``."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Order:
        faults = [one for one in (self.event, self.line) if one is not None]
        if len(faults) != (self.do == "inject"):
            raise ValueError("inject has an event or a line, nothing else has")
        if (self.name is not None) != (self.do == "heal"):
            raise ValueError("heal has a name, nothing else has")
        return self


def send_order(folder: Folder, order: Order) -> str:
    """Write it where the run's lab looks; returns the id that its answer will carry.

    Raises:
        ConfigError: no such fault.
        RunError: a run that takes no commands, or is over.
    """
    said: dict[str, Any] = {}
    if order.do == "inject":
        said["event"] = parse_fault(order.line) if order.line is not None else order.event
    if order.do == "heal":
        said["name"] = order.name
    identity, line = command_line(order.do, **said)
    try:
        stream = open_to_append(folder, [FOLDER, COMMANDS])
    except OSError:
        raise RunError(
            "this run takes no commands", "a run takes them when it is started with a pace"
        ) from None
    with stream:
        if not is_locked(folder, EVENTS):
            raise RunError("this run is over", OVER_HINT)
        stream.write(line)
    return identity
