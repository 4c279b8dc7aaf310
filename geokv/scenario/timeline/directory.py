"""Faults of the directory: its table, and what it is told."""

from __future__ import annotations

from typing import Literal

from geokv.scenario.timeline.event import Event, Lasting, Share, Wait


class DirectoryKill(Lasting):
    """The table answers nothing; it is empty when it is back."""

    fault: Literal["directory-kill"]


class DirectoryRestart(Event):
    """The table begins anew, without its entries or with those of a while ago."""

    fault: Literal["directory-restart"]
    how: Literal["empty", "stale"] = "empty"


class EventLoss(Lasting):
    """Of what sites tell the directory, a share does not arrive."""

    fault: Literal["event-loss"]
    share: Share


class EventDuplicate(Lasting):
    """Of what sites tell the directory, a share arrives twice."""

    fault: Literal["event-duplicate"]
    share: Share


class EventReorder(Lasting):
    """What sites tell the directory arrives in another order."""

    fault: Literal["event-reorder"]
    window: Wait
    """Within which they are shuffled."""
