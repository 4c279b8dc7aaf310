"""What a running drill can be told: a fault, its healing, or to stop (docs/live.md)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field

from geokv.config import Strict, validate
from geokv.errors import ConfigError
from geokv.scenario import Scenario
from geokv.scenario.checks_drill import event_problems
from geokv.scenario.paths import suggest
from geokv.scenario.timeline import Event, OurEvent
from geokv.scenario.timeline.event import NAME
from geokv.scenario.workload import OpenLoop

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Inject(Strict):
    """A fault, now or at a moment of its own."""

    id: Id
    do: Literal["inject"]
    event: dict[str, Any]
    """As in a ``timeline``, but no fault of the user's own. Without ``at`` and ``when`` it is now;
    without a name it gets one."""


class Heal(Strict):
    """A fault that lasts is taken back now, whoever made it."""

    id: Id
    do: Literal["heal"]
    name: Annotated[str, Field(pattern=NAME)]


class Stop(Strict):
    """No request is sent any more; the drill comes to its end in order."""

    id: Id
    do: Literal["stop"]


Command = Inject | Heal | Stop


class _Told(Strict):
    command: Annotated[Command, Field(discriminator="do")]


class _Timeline(Strict):
    event: OurEvent


def read_command(data: Any) -> Command:
    """A command from plain data.

    Raises:
        ConfigError: ``command.do: is required``.
    """
    return validate(_Told, {"command": data}).command


def event_by_hand(
    scenario: Scenario, mapping: dict[str, Any], names: Collection[str], now_s: float = 0.0
) -> Event:
    """The event that a command asks for, complete.

    Args:
        names: of the drill's faults so far.
        now_s: since the first request was due.

    Raises:
        ConfigError: no such fault, site or link, a name that is taken, or a run that takes none.
    """
    stream = scenario.workload
    if not isinstance(stream, OpenLoop):
        raise ConfigError(
            "faults are made in drills; this is a measurement run, whose weather is fair",
            "run a scenario with workload.kind stream: geokv run live --pace 1x",
        )
    whole = dict(mapping)
    if whole.get("at") is None and whole.get("when") is None:
        whole["at"] = max(0.0, now_s)
    if whole.get("name") is None and isinstance(whole.get("fault"), str):
        whole["name"] = _free_name(whole["fault"], names)
    event: Event = validate(_Timeline, {"event": whole}).event
    found = event_problems(scenario, stream, event, "event")
    if event.title in names:
        found.append(f"event.name: {event.title} is the name of another fault of this drill")
    if "expect" in mapping:
        found.append("event.expect: promises belong to the timeline of a scenario")
    waits = event.condition
    if waits is not None and waits.fault is not None and waits.fault not in names:
        found.append(
            f"event.when: no fault is called {waits.fault}{suggest(waits.fault, list(names))}"
        )
    if found:
        raise ConfigError("\n".join(found))
    return event


def _free_name(kind: str, names: Collection[str]) -> str:
    return next(
        name for number in range(1, len(names) + 2) if (name := f"{kind}-{number}") not in names
    )
