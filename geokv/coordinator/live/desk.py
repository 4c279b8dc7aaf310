"""Takes commands, does them or says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from geokv.clock import now_ns
from geokv.coordinator.drill.stage import Stage
from geokv.coordinator.drill.stream import StreamRunner
from geokv.coordinator.drill.timeline import Timeline
from geokv.coordinator.live.inbox import LOOK_EVERY_S, Inbox
from geokv.errors import ConfigError, GeokvError
from geokv.live.command import Command, Heal, Inject, Stop, event_by_hand, read_command
from geokv.units import NS_PER_S

Do = Callable[[Command], dict[str, Any]]
"""Carries a command out, or begins to; what the answer says of it. Raises why it does not."""


class Desk:
    """Answers each command once with a ``command`` event: ``accepted``, or ``refused`` and why.

    Args:
        inbox: kept over the cells of a run, so that nothing is taken twice.
        tell: takes the event's name and what it says.
    """

    def __init__(self, inbox: Inbox, tell: Callable[..., None]) -> None:
        self._inbox = inbox
        self._tell = tell

    async def serve(self, do: Do) -> None:
        """Until it is cancelled."""
        while True:
            self.look(do)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self, do: Do) -> None:
        """Take and answer what has come."""
        for data in self._inbox.new():
            said = data if isinstance(data, dict) else {}
            named = {"id": said.get("id"), "do": said.get("do")}
            try:
                answer = do(read_command(data))
            except GeokvError as error:
                self._tell("command", **named, phase="refused", reason=error.message)
            else:
                self._tell("command", **named, phase="accepted", **answer)


def refuse(why: str) -> Do:
    """For times, and runs, in which nothing is done."""

    def do(command: Command) -> dict[str, Any]:
        raise ConfigError(why)

    return do


def in_drill(stage: Stage, timeline: Timeline, stream: StreamRunner, start_ns: int) -> Do:
    """What commands do while a drill's stream runs; each is in its history too."""

    def do(command: Command) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        if isinstance(command, Inject):
            now_s = (now_ns() - start_ns) / NS_PER_S
            event = event_by_hand(stage.scenario, command.event, timeline.names, now_s)
            timeline.add(event, start_ns)
            answer = {"name": event.title}
        elif isinstance(command, Heal):
            timeline.heal(command.name)
            answer = {"name": command.name}
        else:
            assert isinstance(command, Stop), "there is no other"
            stream.stop()
        stage.note("command", do=command.do, id=command.id, **answer)
        return answer

    return do
