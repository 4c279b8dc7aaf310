"""What a checker says of one history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from geokv.measure.checker.history import Event, History


@dataclass(frozen=True)
class Finding:
    """``ok`` is None when the history does not hold what would be needed to know."""

    name: str
    inv: str
    """Which invariant it is about, such as ``INV-2``; empty if none."""
    ok: bool | None
    said: str
    """A sentence with counts: what was examined, or the first thing that is wrong."""
    excerpt: list[Event] = field(default_factory=list)
    """The fewest events that show the first violation, in order; the checker that is given
    only these says the same. Empty unless ``ok`` is False."""


Check = Callable[[History], Finding]
Offence = tuple[str, Sequence[Event]]
"""A sentence, and the events that show it."""


def conclude(
    name: str, inv: str, offences: Sequence[Offence], unknown: str, examined: str
) -> Finding:
    """The finding of a checker that has been through the whole history.

    Args:
        offences: in the order in which they happened.
        unknown: why nothing can be said if there are none; empty when it can.
        examined: what was looked at and found in order.
    """
    if offences:
        said, excerpt = offences[0]
        count = f"{len(offences)} times, first: " if len(offences) > 1 else ""
        return Finding(name, inv, False, count + said, list(excerpt))
    if unknown:
        return Finding(name, inv, None, unknown)
    return Finding(name, inv, True, examined)
