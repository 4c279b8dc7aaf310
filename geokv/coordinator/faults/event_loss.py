"""Of what sites tell the directory a share does not arrive."""

from __future__ import annotations

from typing import Any

from geokv.coordinator.faults.event_way import EventWayFault
from geokv.scenario.timeline import EventLoss


class EventLossFault(EventWayFault[EventLoss]):
    """Some of what sites tell the directory never arrives."""

    kind = "event-loss"
    happens = "lost"
    words = "was lost"

    def setting(self, on: bool) -> dict[str, Any]:
        return {"loss": self.event.share if on else 0.0}
