"""``integrity``: did every site come to rest, and do its books agree with themselves then?

Bytes that a ``bit-rot`` of the drill has flipped and that nobody has read since lie as they were
left: no memory finds out before it is read, and then the line ``corrupt`` is about it. Any other
chunk that is not what its checksums say is one that the product spoilt.
"""

from __future__ import annotations

from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History

NAME, INV = "integrity", "INV-5"


def check(history: History) -> Finding:
    """Look at what every site said of its books when all was quiet."""
    offences: list[Offence] = []
    sites = set()
    rotten = _rotten(history)
    asleep = 0
    for event in history.of("quiesced", "integrity"):
        site = event["site"] or "the drill"
        if event["op"] == "quiesced":
            if not event["ok"]:
                said = event.get("said") or "no reason given"
                offences.append((f"{site} did not come to rest: {said}", [event]))
            continue
        sites.add(site)
        if event.get("result") == "ok":
            continue
        damaged = _damaged(event)
        if damaged and damaged <= rotten:
            asleep += len(damaged)
            continue
        said = event.get("result") or f"no answer ({event.get('error')})"
        offences.append((f"{site}: {said}", [event]))
    unknown = "" if sites else "no site was examined when all was quiet"
    examined = f"the books of {len(sites)} sites agree"
    if asleep:
        examined += f"; chunks that rotted and that nobody has read since: {asleep}"
    return conclude(NAME, INV, offences, unknown, examined)


def _damaged(event: Event) -> set[tuple[str, str]]:
    """Site and key of what does not match its checksums, where that is all that is wrong."""
    return {(event["site"], key) for keys in event.get("damaged", {}).values() for key in keys}


def _rotten(history: History) -> set[tuple[str, str]]:
    """Site and key of what a fault flipped bits in, and what was not stored anew there since."""
    found: set[tuple[str, str]] = set()
    for event in history.of("fault", "store"):
        if event["op"] == "store":
            found.discard((event["site"], event["key"]))
        elif event["kind"] == "bit-rot" and event["phase"] == "took-effect":
            found |= {(event["target"], key) for key in event["evidence"].get("keys", ())}
    return found
