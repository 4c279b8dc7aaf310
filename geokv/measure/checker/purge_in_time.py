"""``purge-in-time``: was every purge acknowledged when it had to be?

A purge is acknowledged ``bound`` after its authority wrote it down (``heard``), or sooner; the site
that asked learns of it with a beat, and beats may be lost until a peer counts as down. How long
that is altogether stands in the purge (``within_ns``). While authority and asker call each other
down, no news can come, and nothing is held against them.
"""

from __future__ import annotations

from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History

NAME, INV = "purge-in-time", "INV-6"


def asked_for(history: History) -> bool:
    """Whether there is a purge that says how long it may take."""
    return any("within_ns" in event for event in history.of("purge"))


def check(history: History) -> Finding:
    """Hold every acknowledgement of a purge against its bound."""
    asked = {event["purge_id"]: event for event in history.of("purge") if "within_ns" in event}
    written, acked = _first(history, "heard"), _first(history, "acked")
    ended = next(history.of("drill-end"), None)
    offences: list[Offence] = []
    took_ms: list[float] = []
    parted = waiting = 0
    for name, purge in asked.items():
        if name not in written and name not in acked:
            # Whoever asked was refused, and told so: nothing was promised.
            waiting += 1
            continue
        begun, end = written.get(name, purge), acked.get(name, ended)
        if end is None:
            waiting += 1
            continue
        took_ns = end["t_ns"] - begun["t_ns"]
        if name in acked:
            took_ms.append(took_ns / 1e6)
        if took_ns <= purge["within_ns"]:
            waiting += name not in acked
        elif _parted(history, purge["site"], begun["site"], begun["t_ns"], end["t_ns"]):
            parted += 1
        else:
            did = "was acknowledged" if name in acked else "had not been acknowledged"
            said = (
                f"purge {name} {did} {took_ns / 1e6:.3f} ms after it was written down, "
                f"more than {purge['within_ns'] / 1e6:g} ms"
            )
            proof = [purge, *([begun] if begun is not purge else []), end]
            offences.append((said, proof))
    unknown = "" if asked else "no purge says how long it may take"
    if parted or waiting:
        unknown = (
            f"of {len(asked)} purges {parted} could not be acknowledged in time, as who asked and "
            f"the authority were parted, and {waiting} were refused or not waited for"
        )
    limits = max((purge["within_ns"] / 1e6 for purge in asked.values()), default=0)
    said = f"{len(asked)} purges, each acknowledged within {max(took_ms, default=0):.3f} ms; "
    return conclude(NAME, INV, offences, unknown, f"{said}at most {limits:g} ms")


def _first(history: History, phase: str) -> dict[object, Event]:
    """Purge → the first event of this phase."""
    found: dict[object, Event] = {}
    for event in history.of("purge"):
        if event.get("phase") == phase:
            found.setdefault(event["purge_id"], event)
    return found


def _parted(history: History, one: str, other: str, since_ns: int, until_ns: int) -> bool:
    """Did either of the two call the other down at any time in between?"""
    down: set[tuple[str, str]] = set()
    for event in history.of("peer-down", "peer-up"):
        way = (event["site"], event["peer"])
        if way not in ((one, other), (other, one)) or event["t_ns"] > until_ns:
            continue
        if event["op"] == "peer-down":
            down.add(way)
        elif event["t_ns"] < since_ns:
            down.discard(way)
    return bool(down)
