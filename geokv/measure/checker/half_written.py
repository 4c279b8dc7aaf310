"""``half-written``: was anything readable before it was whole and verified?

A chunk may be used or served by a site only after that site said that it is whole there: stored,
fetched, pushed, converted, promoted, or found on its disk. A chunk that was sent completely has as
many bytes as it should, and as many checksums as when it was stored.
"""

from __future__ import annotations

from geokv.measure.checker.copies import followed
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History, handed_over

NAME, INV = "half-written", "INV-2"


def check(history: History) -> Finding:
    """Look before every use and every send for the word that the chunk is whole there."""
    offences: list[Offence] = []
    groups: dict[str, Event] = {}
    examined = 0
    for event, copies, _ in followed(history, "use", "serve"):
        if event.get("cause") or "key" not in event:
            continue
        key, op = event["key"], event["op"]
        sums = event.get("checksums") or ()
        if op == "store" and sums:
            groups[key] = event
        elif sums and key in groups and len(sums) != len(groups[key]["checksums"]):
            said = f"{len(sums)} of {len(groups[key]['checksums'])} layer groups"
            offences.append((f"{_named(event)} with {said}", [groups[key], event]))
        if not handed_over(event):
            continue
        examined += 1
        if copies.last(event["site"], key) is None:
            offences.append((f"{_named(event)} before it was whole there", [event]))
        elif op == "serve" and event.get("sent_bytes", 0) < event.get("total_bytes", 0):
            said = f"{event['sent_bytes']} of {event['total_bytes']} bytes"
            offences.append((f"{_named(event)} as complete after {said}", [event]))
    unknown = "" if examined else "nothing was used or served"
    said = f"all {examined} chunks that were used or served were whole where they came from"
    return conclude(NAME, INV, offences, unknown, said)


def _named(event: Event) -> str:
    done = {"use": "used", "serve": "served"}.get(event["op"], "taken")
    return f"chunk {event['key'][:12]}… was {done} at {event['site']}"
