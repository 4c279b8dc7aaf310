"""Checkers: what must never happen, looked for in the history of a run alone. One per file."""

from __future__ import annotations

from geokv.errors import RunError
from geokv.measure.checker import (
    answered_wrongly,
    corrupt,
    directory_converges,
    doubly_owned,
    foreign,
    half_written,
    integrity,
    leaked,
    never_answered,
    purge_in_time,
    served_after_purge,
    served_after_revocation,
    stale,
    tenant_timing,
)
from geokv.measure.checker.finding import Check, Finding
from geokv.measure.checker.history import Event, History, load_histories

__all__ = ["CHECKERS", "Check", "Event", "Finding", "History", "check_all", "load_histories"]

CHECKERS: dict[str, Check] = {
    module.NAME: module.check
    for module in (
        stale,
        foreign,
        corrupt,
        half_written,
        leaked,
        doubly_owned,
        served_after_purge,
        served_after_revocation,
        purge_in_time,
        answered_wrongly,
        never_answered,
        directory_converges,
        integrity,
        tenant_timing,
    )
}
"""Judged line → its checker, in the order of reports."""


ON_REQUEST = {
    purge_in_time.NAME: purge_in_time.asked_for,
    served_after_revocation.NAME: served_after_revocation.asked_for,
    tenant_timing.NAME: tenant_timing.asked_for,
}
"""Lines that are judged only where there is what they are about: a purge, a revoked key, a stream
that was made for it."""


def check_all(history: History) -> list[Finding]:
    """What every checker says of one cell.

    Raises:
        RunError: an event lacks what its operation always has.
    """
    try:
        return [
            check(history)
            for name, check in CHECKERS.items()
            if name not in ON_REQUEST or ON_REQUEST[name](history)
        ]
    except KeyError as error:
        raise RunError(
            f"history.jsonl: an event has no field {error}",
            "another version of geokv wrote it; check it with that",
        ) from None
