"""What the page tells a running lab: faults, their healing, the end of its stream."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from geokv.config import Strict
from geokv.dashboard.reading import stamp_of
from geokv.errors import RunError
from geokv.live.send import COMMANDS, FOLDER, send
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


def send_order(run_dir: Path, order: Order) -> str:
    """Write it where the run's lab looks; returns the id that its answer will carry.

    Raises:
        ConfigError: no such fault, or a run that takes no commands.
        RunError: the run is over.
    """
    if stamp_of(run_dir, FOLDER, COMMANDS) is None or (run_dir / FOLDER).is_symlink():
        raise RunError(
            "this run takes no commands", "a run takes them when it is started with a pace"
        )
    said: dict[str, Any] = {}
    if order.do == "inject":
        said["event"] = parse_fault(order.line) if order.line is not None else order.event
    if order.do == "heal":
        said["name"] = order.name
    return send(run_dir, order.do, **said)
