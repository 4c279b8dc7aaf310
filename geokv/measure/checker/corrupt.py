"""``corrupt``: were the bytes that an engine was given those that were once computed?

Every ``use`` carries checksums of the very bytes that were handed over, and so does the header of
every fetched chunk. Both must be among the checksums with which that key was stored (or converted
from another layout, or came through a lossy codec) anywhere before.
"""

from __future__ import annotations

from collections import defaultdict

from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History

NAME, INV = "corrupt", "INV-1"


def check(history: History) -> Finding:
    offences, compared, lonely = compare(history)
    if lonely:
        unknown = f"{lonely} chunks were used or fetched that nobody stored in this history"
    else:
        unknown = "" if compared else "no checksum of anything used or fetched is in the history"
    examined = f"all {compared} chunks that were used or fetched have the bytes that were computed"
    return conclude(NAME, INV, offences, unknown, examined)


def compare(history: History) -> tuple[list[Offence], int, int]:
    """Offences (the last event of each is the use or fetch that is wrong), how many chunks were
    compared, and how many had nothing to be compared with."""
    true: dict[str, dict[tuple[str, ...], Event]] = defaultdict(dict)
    offences: list[Offence] = []
    compared = lonely = 0
    for event in history.of("store", "convert", "found", "fetch", "use"):
        sums = tuple(event.get("checksums") or ())
        if not sums or event.get("cause"):
            continue
        op, known = event["op"], true[event["key"]]
        if op in ("store", "convert") or event.get("lossy"):
            known.setdefault(sums, event)
        elif op == "found":
            if not known:
                # Computed before this history began.
                known[sums] = event
        elif not known:
            lonely += 1
        else:
            compared += 1
            # Of another length they are half-written, not wrong.
            if sums not in known and len(sums) == len(next(iter(known))):
                offences.append((_said(event), [next(reversed(known.values())), event]))
    return offences, compared, lonely


def _said(event: Event) -> str:
    what = "used" if event["op"] == "use" else "fetched"
    return (
        f"chunk {event['key'][:12]}… from {event.get('source', '?')} was {what} at "
        f"{event['site']} with bytes that nobody computed"
    )
