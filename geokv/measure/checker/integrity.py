"""``integrity``: did every site come to rest, and do its books agree with themselves then?"""

from __future__ import annotations

from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import History

NAME, INV = "integrity", "INV-5"


def check(history: History) -> Finding:
    offences: list[Offence] = []
    sites = set()
    for event in history.of("quiesced", "integrity"):
        site = event["site"] or "the drill"
        if event["op"] == "quiesced":
            if not event["ok"]:
                said = event.get("said") or "no reason given"
                offences.append((f"{site} did not come to rest: {said}", [event]))
            continue
        sites.add(site)
        if event.get("result") != "ok":
            said = event.get("result") or f"no answer ({event.get('error')})"
            offences.append((f"{site}: {said}", [event]))
    unknown = "" if sites else "no site was examined when all was quiet"
    return conclude(NAME, INV, offences, unknown, f"the books of {len(sites)} sites agree")
