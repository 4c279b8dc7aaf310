"""A run while it goes on: what it tells (``events.jsonl``), and what it can be told."""

from geokv.live.events import EVENTS, EventLog, describe_run
from geokv.live.follow import Follower, is_going_on, read_events

__all__ = ["EVENTS", "EventLog", "Follower", "describe_run", "is_going_on", "read_events"]
