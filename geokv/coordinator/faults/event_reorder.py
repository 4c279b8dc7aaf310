"""What sites tell the directory arrives in another order."""

from __future__ import annotations

from typing import Any

from geokv.coordinator.faults.event_way import EventWayFault
from geokv.scenario.timeline import EventReorder


class EventReorderFault(EventWayFault[EventReorder]):
    """What sites tell the directory is overtaken by what they told it later."""

    kind = "event-reorder"
    happens = "overtaken"
    words = "was overtaken by a later one"

    def setting(self, on: bool) -> dict[str, Any]:
        return {"window_s": self.event.window if on else 0.0}
