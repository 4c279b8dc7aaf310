"""``corrupt``: were the bytes that an engine was given those that were once computed?

Every ``use`` carries checksums of the very bytes that were handed over, and so does the header of
every fetched chunk. Both must be among the checksums with which that key was stored (or converted
from another layout, or came through a lossy codec) anywhere before.

Where ``drill-begin`` says that content is ``exact``, two computations of one key (which stands for
tenant, epoch and every token up to its end) give the same bytes, and one that differs from the
first is itself an offence; nothing may then be used with its bytes. A model's floats depend on how
requests were batched and cut: there each computation is as true as the other, and answers say
whether one of them was wrong.
"""

from __future__ import annotations

from collections import defaultdict

from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History

NAME, INV = "corrupt", "INV-1"


def check(history: History) -> Finding:
    """Compare what was used and fetched with what was computed."""
    offences, compared, lonely = compare(history)
    if lonely:
        unknown = f"{lonely} chunks were used or fetched that nobody stored in this history"
    else:
        unknown = "" if compared else "no checksum of anything used or fetched is in the history"
    examined = f"all {compared} chunks that were used or fetched have the bytes that were computed"
    return conclude(NAME, INV, offences, unknown, examined)


def compare(history: History) -> tuple[list[Offence], int, int]:
    """Offences (the last event of each is the store, use or fetch that is wrong), how many chunks
    were compared, and how many had nothing to be compared with."""
    exact = next((event for event in history.of("drill-begin") if event.get("exact")), None)
    true: dict[str, dict[tuple[str, ...], Event]] = defaultdict(dict)
    stored: dict[str, Event] = {}
    offences: list[Offence] = []
    compared = lonely = 0
    for event in history.of("store", "convert", "found", "fetch", "use"):
        sums = tuple(event.get("checksums") or ())
        if not sums or event.get("cause"):
            continue
        op, known = event["op"], true[event["key"]]
        if op == "store" and exact is not None:
            first = stored.setdefault(event["key"], event)
            if sums == tuple(first["checksums"]):
                known.setdefault(sums, event)
            else:
                offences.append((_otherwise(event, first), [exact, first, event]))
        elif op in ("store", "convert") or event.get("lossy"):
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


def _otherwise(again: Event, first: Event) -> str:
    return (
        f"chunk {again['key'][:12]}… was computed at {again['site']} with other bytes than at "
        f"{first['site']}, and its content is exact"
    )


def _said(event: Event) -> str:
    what = "used" if event["op"] == "use" else "fetched"
    return (
        f"chunk {event['key'][:12]}… from {event.get('source', '?')} was {what} at "
        f"{event['site']} with bytes that nobody computed"
    )
