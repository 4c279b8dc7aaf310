"""Of what sites tell the directory a share arrives twice."""

from __future__ import annotations

from typing import Any

from geokv.coordinator.faults.event_way import EventWayFault
from geokv.scenario.timeline import EventDuplicate


class EventDuplicateFault(EventWayFault[EventDuplicate]):
    """Some of what sites tell the directory arrives twice."""

    kind = "event-duplicate"
    happens = "duplicated"
    words = "arrived twice"

    def setting(self, on: bool) -> dict[str, Any]:
        return {"duplicate": self.event.share if on else 0.0}
