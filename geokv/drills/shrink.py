"""From a drill that fails to the least of it that still fails.

Delta debugging (Zeller and Hildebrandt 2002, ddmin) over the events of the timeline, then fewer
requests, then shorter faults. Whether something still fails is asked of the caller, several
candidates at a time; of those that do, the first counts, so the answer does not depend on how many
were asked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

Drill = dict[str, Any]
"""A scenario as ``Scenario.resolved`` gives it."""
FirstFailing = Callable[[Sequence[Drill]], int | None]
"""The place of the first candidate that still fails; one that is no valid scenario does not."""

_LENGTHS = ("for", "restart")
"""Keys of an event that are a time it lasts."""
_LEAST_S = 0.001
_ROUNDS = 6


def shrink(drill: Drill, first_failing: FirstFailing) -> Drill:
    """The smallest drill found that still fails. ``drill`` itself must."""
    drill = _fewer_events(drill, first_failing)
    drill = _fewer_requests(drill, first_failing)
    return _shorter(drill, first_failing)


def _fewer_events(drill: Drill, first_failing: FirstFailing) -> Drill:
    """ddmin: halves, then quarters …; parts by themselves before all but one part."""
    events = list(drill.get("timeline", []))
    if not events:
        return drill
    if first_failing([_with(drill, [])]) is not None:
        return _with(drill, [])
    parts = 2
    while len(events) >= 2:
        pieces = _split(events, parts)
        rests = [
            [event for other in pieces if other is not piece for event in other] for piece in pieces
        ]
        # Of two parts, the rest of one is the other.
        tried = pieces if parts == 2 else [*pieces, *rests]
        found = first_failing([_with(drill, one) for one in tried])
        if found is not None:
            events = tried[found]
            parts = 2 if found < len(pieces) else max(parts - 1, 2)
        elif parts < len(events):
            parts = min(len(events), parts * 2)
        else:
            break
    return _with(drill, events)


def _fewer_requests(drill: Drill, first_failing: FirstFailing) -> Drill:
    for _ in range(_ROUNDS):
        # Of a trace the file says how many there are.
        count = int(drill["workload"].get("requests", 0))
        fewer = sorted({count // 4, count // 2, count * 3 // 4} - {0, count})
        tried = [_set(drill, ("workload", "requests"), n) for n in fewer]
        found = first_failing(tried) if tried else None
        if found is None:
            break
        drill = tried[found]
    return drill


def _shorter(drill: Drill, first_failing: FirstFailing) -> Drill:
    for number, key in _lasting(drill):
        for _ in range(_ROUNDS):
            length = drill["timeline"][number][key]
            if length / 2 < _LEAST_S:
                break
            # Whole milliseconds read better and are no longer.
            shorter = {_ms(length / 4), _ms(length / 2)} - {0.0, length}
            tried = [_set(drill, ("timeline", number, key), one) for one in sorted(shorter)]
            found = first_failing(tried) if tried else None
            if found is None:
                break
            drill = tried[found]
    return drill


def _lasting(drill: Drill) -> Iterator[tuple[int, str]]:
    for number, event in enumerate(drill.get("timeline", [])):
        for key in _LENGTHS:
            if isinstance(event.get(key), int | float):
                yield number, key


def _ms(seconds: float) -> float:
    return int(seconds * 1000) / 1000


def _split(events: Sequence[Any], parts: int) -> list[list[Any]]:
    """Into so many parts of nearly equal length, none empty."""
    ends = [len(events) * number // parts for number in range(parts + 1)]
    pieces = [list(events[a:b]) for a, b in pairwise(ends)]
    return [piece for piece in pieces if piece]


def _with(drill: Drill, events: Sequence[Any]) -> Drill:
    return {**drill, "timeline": list(events)}


def _set(drill: Drill, path: tuple[str | int, ...], value: Any) -> Drill:
    copy = deepcopy(drill)
    here: Any = copy
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    return copy
